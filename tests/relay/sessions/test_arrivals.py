"""Sign-ins that need no task each, and all their outcomes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from proto.identity import tokens
from proto.rmb.reasons import SessionReason
from relay.sessions import arrivals
from relay.sessions.arrivals import Arrivals
from relay.twins.source import TwinRecord
from tests.relay.sessions.test_admission import admission_of, worker_of
from tests.relay.twins.sources import ScriptedSource
from tests.support.identities import twin

ADDRESS = "192.0.2.1"


def forged() -> str:
    """Return a token of a twin that another twin signed."""
    return tokens.issue(twin(8).signing_key, 7, None, int(time.time()))


class Handshake:
    """A handshake that records its outcome; it is its own socket."""

    def __init__(self, query: str | None = None) -> None:
        self.query = (twin(7).token(None) if query is None else query).encode()
        self.address = ADDRESS
        self.user_agent = "agent"
        self.socket = self
        self.over = self.started = False
        self.status = 0
        self.text = ""

    def accept(self) -> None:
        assert not self.status
        self.status = 101

    def refuse(self, status: int, text: str) -> None:
        assert not self.status
        self.status, self.text = status, text

    def start(self, session: Any, account: int) -> None:
        assert account == 7
        self.started = True


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not check():
            await asyncio.sleep(0.001)


class Sides:
    """A worker whose claims are answered when the test says so, and the calls it received."""

    def __init__(self, *, on_chain: bool = False) -> None:
        self.source = ScriptedSource()
        self.source.twins[7] = TwinRecord(7, twin(7).account, None, ("localhost",), 1)
        self.worker = worker_of(self.source)
        self.opened: list[Any] = []
        self.ended: list[SessionReason] = []
        self.changed: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []
        counts = SimpleNamespace(refused_handshakes=Counter())
        vars(self.worker).update(
            open=self.open,
            end=lambda session, reason: self.ended.append(reason),
            spawn=lambda work: self.tasks.append(asyncio.create_task(work)),
            metrics=counts,
            hits=SimpleNamespace(handshake=lambda address: None),
            rights=SimpleNamespace(changed=self.changed.extend),
        )
        self.arrivals = Arrivals(self.worker, admission_of(self.worker, on_chain=on_chain))

    def open(self, key: Any, socket: Any, record: Any, agent: str, opening: Any) -> Any:
        assert (record.id, agent) == (7, "agent")
        self.opened.append(opening)
        return SimpleNamespace(destination=SimpleNamespace(key=key))

    async def judged(self, handshake: Handshake) -> None:
        """Pass on a handshake, and return once it is open or refused."""
        self.arrivals.take(handshake)  # type: ignore[arg-type]
        await until(lambda: bool(self.opened or handshake.status))


@pytest.mark.parametrize("on_chain", [False, True])
async def test_a_client_is_accepted_with_its_claim(on_chain: bool) -> None:
    sides, first, again = Sides(on_chain=on_chain), Handshake(), Handshake()
    await sides.judged(first)
    assert not first.status
    for _ in range(2):
        sides.opened[0].claim_made()
        assert (first.status, first.started) == (101, True)
    sides.arrivals.take(again)  # type: ignore[arg-type]  # the twin is known now
    sides.opened[1].claim_made()
    assert again.started
    assert not sides.ended


async def test_a_client_does_not_wait_for_ever_for_a_claim(monkeypatch: Any) -> None:
    monkeypatch.setattr(arrivals, "CLAIM_WAIT_S", 0.01)
    sides, handshake = Sides(), Handshake()
    await sides.judged(handshake)
    await until(lambda: handshake.started)
    sides.opened[0].claim_made()
    assert not sides.ended


@pytest.mark.parametrize(
    ("query", "text"),
    [
        (lambda: "a.b", "invalid jwt: a token has 3 parts, not 2"),
        (lambda: twin(8).token(None), "twin not found 8"),
        (forged, "invalid jwt: sr25519 signature"),
    ],
    ids=["no token", "unknown twin", "forged"],
)
async def test_others_are_refused(query: Callable[[], str], text: str) -> None:
    sides, handshake = Sides(), Handshake(query())
    await sides.judged(handshake)
    assert handshake.status == 401
    assert handshake.text.startswith(text)
    assert sides.worker.metrics.refused_handshakes.total() == 1


@pytest.mark.parametrize("on_chain", [False, True])
async def test_a_source_that_is_away_is_no_fault_of_the_client(on_chain: bool) -> None:
    sides, handshake = Sides(on_chain=on_chain), Handshake()
    sides.source.away = True
    await sides.judged(handshake)
    assert (handshake.status, handshake.text) == (500, "twin lookup failed")


async def test_what_changed_during_the_look_up_is_judged_again() -> None:
    sides, first, last = Sides(), Handshake(), Handshake()
    sides.source.open.clear()
    sides.arrivals.take(first)  # type: ignore[arg-type]
    await sides.source.asked.wait()
    sides.worker.draining = True
    sides.source.open.set()
    await until(lambda: first.status == 503)
    sides.worker.draining = False
    sides.worker.twins.invalidate([7])
    sides.source.asked.clear()
    sides.source.open.clear()
    sides.arrivals.take(last)  # type: ignore[arg-type]  # with an old copy, in a task
    await sides.source.asked.wait()
    sides.worker.twins.invalidate([7])
    sides.source.open.set()
    await until(lambda: bool(sides.opened))
    assert sides.changed == [7]


async def test_a_client_that_leaves_opens_nothing() -> None:
    sides, early, late = Sides(), Handshake(), Handshake()
    early.over = True
    sides.arrivals.take(early)  # type: ignore[arg-type]
    await sides.judged(late)
    assert len(sides.opened) == 1
    late.over = True
    sides.opened[0].claim_made()
    assert not late.started
    assert sides.ended == [SessionReason.CLIENT_CLOSE]


async def test_a_defect_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    sides, handshake = Sides(), Handshake()
    sides.worker.open = None
    await sides.judged(handshake)
    assert (handshake.status, handshake.text) == (500, "internal error")
    assert "a sign-in failed" in caplog.text


async def test_a_defect_in_a_look_up_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sides, handshake = Sides(on_chain=True), Handshake()

    async def look_up(token: Any, address: str) -> TwinRecord | None:
        raise ValueError("a defect")

    monkeypatch.setattr(sides.arrivals.admission, "look_up", look_up)
    await sides.judged(handshake)
    assert (handshake.status, handshake.text) == (500, "internal error")
    assert "a sign-in failed" in caplog.text
