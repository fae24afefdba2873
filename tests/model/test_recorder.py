"""Calls to the recorder about messages and sessions: every event, once, and in order."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from hotpath import compiled
from proto.federation.answers import InboundReason
from proto.limits.window import Limit
from proto.rmb.reasons import MessageReason, SessionReason
from relay.federation.inbound import Inbound
from relay.federation.inbound_partners import Partner
from relay.queues.batch import QueuePolicy
from rmbsite.config import load
from tests.model.marks import ABANDONED
from tests.support.sim.world import DOMAIN, GUEST_TWIN, UNKNOWN_TWIN, Twin, World

pytestmark = ABANDONED

A, B = (1, None), (2, None)


@pytest.fixture(params=[False, True], ids=["parsed", "unparsed"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Return a world that handles messages with the pure or with the compiled implementation."""
    monkeypatch.setattr(compiled, "in_use", lambda: request.param)
    yield World(7, workers=1)
    gc.collect()


def _told(world: World, uid: str) -> list[tuple[object, ...]]:
    told = world.workers[0].told
    return [(what, *more) for what, about, *more in told if about == uid]


def _sent(world: World, sender: Twin, to: tuple[int, str | None], size_bytes: int = 10) -> str:
    uid = sender.send(to, size_bytes).uid
    world.run_for(0.5)
    return uid


def test_a_message_to_a_session(world: World) -> None:
    sender = world.connect_live(world.workers[0], A)
    uid = _sent(world, sender, B)
    accepted = _told(world, uid)
    assert [what for what, *_ in accepted] == ["waits", "accepted", "queued"]
    receiver = world.connect_live(world.workers[0], B)
    live = _sent(world, sender, B)
    for each in (uid, live):
        told = [each for each in _told(world, each) if each[0] != "waits"]
        assert [what for what, *_ in told] == ["accepted", "queued", "delivered"]
        assert told[0][1] > 10 and told[1][1] == told[2][1] == "2"
    assert receiver.got == [uid, live]


def test_a_message_to_another_relay(world: World) -> None:
    sender = world.connect_live(world.workers[0], A)
    uid = _sent(world, sender, (GUEST_TWIN, None))
    assert [what for what, *_ in _told(world, uid)] == ["waits", "accepted", "federated"]


def test_a_refused_message_is_not_accepted(world: World) -> None:
    sender = world.connect_live(world.workers[0], A)
    uid = _sent(world, sender, (UNKNOWN_TWIN, None))
    waited, *ended = _told(world, uid)
    assert waited == ("waits", str(UNKNOWN_TWIN))  # it waited for a look-up that found nothing
    assert ended == [("dropped", MessageReason.UNKNOWN_TWIN)]


def test_a_message_above_the_limit(world: World) -> None:
    sender = world.connect_live(world.workers[0], A)
    routes = sender.session.sender
    assert routes is not None
    routes.meter.change(Limit(messages=1))
    taken, refused = _sent(world, sender, B), _sent(world, sender, B)
    assert ("dropped", MessageReason.LIMIT_COUNT) not in _told(world, taken)
    assert _told(world, refused) == [("dropped", MessageReason.LIMIT_COUNT)]
    assert sender.got == [refused], "its error"


def test_a_message_that_would_rather_fail(world: World) -> None:
    sender = world.connect_live(world.workers[0], A)
    uid = sender.send(B, 10, tags="fail-fast").uid
    world.run_for(0.5)
    assert _told(world, uid)[-1] == ("dropped", MessageReason.OFFLINE_FAILFAST)


def test_a_message_of_another_relay(world: World) -> None:
    taken = _brought(world, B, trusted=True)
    assert [what for what, *_ in _told(world, taken)] == ["accepted", "queued"]
    unsigned = _brought(world, B, trusted=False)
    assert _told(world, unsigned) == [("dropped", MessageReason.BAD_SIGNATURE)]
    unknown = _brought(world, B, trusted=True, source=UNKNOWN_TWIN)
    assert _told(world, unknown) == [("dropped", InboundReason.UNKNOWN_SOURCE)]


def _brought(
    world: World, to: tuple[int, str | None], *, trusted: bool, source: int = GUEST_TWIN
) -> str:
    """Let the first worker take a message at its federation endpoint."""
    process = world.workers[0]
    envelope = world.envelope((source, None), to, 10)
    body = envelope.SerializeToString()

    async def post() -> None:
        assert process.worker is not None
        config = load({"relay.domains": DOMAIN, "federation.verify_processes": "0"}, environ={})
        inbound = Inbound(process.worker, config)
        partner = Partner("", trusted, False, False, "192.0.2.1")
        inbound._partners.identify = lambda address, domain: partner  # type: ignore[method-assign]
        process.worker.upkeep.control.known = True

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": body}

        async def send(event: dict[str, object]) -> None:
            pass

        await inbound.serve({"path": "/", "headers": []}, receive, send)

    process.loop.call_soon(lambda: process.loop.create_task(post()))
    world.run_for(0.5)
    return envelope.uid


def test_a_session(world: World) -> None:
    session = world.connect_live(world.workers[0], A)
    session.client.reset()
    world.run_for(1)
    assert _told(world, "") == [("opened", "1"), ("closed", "1", SessionReason.CLIENT_CLOSE)]


def test_mail_that_nobody_fetched() -> None:
    """The recorder gets each expired message, then the reason and the number of messages."""
    world = World(7, workers=1, queue_policy=QueuePolicy(retention_s=60))
    sender = world.connect_live(world.workers[0], A)
    sent = [_sent(world, sender, B) for _ in range(40)]  # more than are read at once
    world.run_for(120)
    assert [_told(world, uid)[-1] for uid in sent] == [("trimmed",)] * 40
    dropped = [told for told in _told(world, "") if told[0] == "dropped"]
    assert dropped == [("dropped", MessageReason.QUEUE_EXPIRED)] * 40
