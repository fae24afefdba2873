"""Messages that wait for the look-up of their twin, in simulated time."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from proto.rmb.reasons import MessageReason
from relay.queues.batch import ITEM_BYTES, QueuePolicy
from relay.queues.keys import SessionKey
from relay.sessions.options import SessionBounds
from relay.sessions.sender import LOOK_UPS, PARKED_BYTES, PARKED_SLICE, Sender
from relay.twins.cache import MISSING, TwinLookupError
from tests.model.marks import ABANDONED
from tests.support.sim.loop import SimLoop
from tests.support.sim.world import Twin, WorkerProcess, World, twin_record

pytestmark = ABANDONED

FIRST = 1_000


class HeldTwins:
    """Twins that are unknown until `answer` is called."""

    def __init__(self, loop: SimLoop) -> None:
        self.generation = 0
        self.asked = 0
        self.away = False
        self._answer = loop.create_future()

    def get(self, twin: int) -> Any:
        return twin_record(twin) if self._answer.done() and not self.away else MISSING

    def doubts(self, twin: int) -> bool:
        return False

    async def look_near(self, twin: int) -> Any:
        return self.get(twin)

    async def look_up(self, twin: int) -> Any:
        self.asked += 1
        await self._answer
        if self.away:
            raise TwinLookupError("nobody is there")
        return twin_record(twin)

    def answer(self) -> None:
        """End all look-ups at once, as the answer to a batch does."""
        self._answer.set_result(None)


class Looked:
    """A sender at a worker whose look-ups are held back, and how its messages were routed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = World(
            3, workers=1, queue_policy=QueuePolicy(), bounds=SessionBounds(4_096, 4_000_000)
        )
        self.here: WorkerProcess = self.world.workers[0]
        assert self.here.worker is not None
        self.sender: Twin = self.world.connect_live(self.here, (1, None))
        self.twins = HeldTwins(self.here.loop)
        self.here.worker.twins = self.twins
        self.routed: list[SessionKey] = []
        self.per_turn: list[int] = []
        self.parked_again = 0
        route, park_entry, turn = Sender._route, Sender._park_entry, self.here.loop.turn

        def routing(sender: Sender, destination: Any, *others: Any) -> None:
            self.routed.append(destination.key)
            route(sender, destination, *others)

        def parking(sender: Sender, entry: Any) -> None:
            self.parked_again += 1
            park_entry(sender, entry)

        def turning() -> None:
            before = len(self.routed)
            turn()
            self.per_turn.append(len(self.routed) - before)

        monkeypatch.setattr(Sender, "_route", routing)
        monkeypatch.setattr(Sender, "_park_entry", parking)
        monkeypatch.setattr(self.here.loop, "turn", turning)

    def send(self, destinations: Sequence[SessionKey]) -> str:
        """Send a message to each destination, then a ping; return its uid when all of them wait."""
        for key in destinations:
            self.sender.send(key)
        last = self.sender.ping()
        self.world.run_for(1)
        self.routed.clear()
        self.per_turn.clear()
        self.parked_again = 0
        return last

    def answer(self, last: str) -> None:
        """Answer the look-ups, and return once the pong has arrived."""
        self.twins.answer()
        self.world.run_until(lambda: last in self.sender.got, 30)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    yield Looked(monkeypatch)
    gc.collect()


def test_look_ups_that_end_together_cost_one_pass(looked: Looked) -> None:
    """Look-ups that end together cause one pass.

    A pass for each of them would examine all waiting messages repeatedly.
    """
    wanted = [(FIRST + n, None) for n in range(LOOK_UPS - 1)]
    last = looked.send(wanted)
    looked.answer(last)
    assert looked.routed == wanted
    assert looked.parked_again == 0


def test_many_messages_behind_one_look_up_are_routed_by_slices(looked: Looked) -> None:
    """Messages are routed in slices, so that other connections do not wait for all of them."""
    wanted = [(FIRST + n % 2, None) for n in range(3 * PARKED_SLICE)]
    last = looked.send(wanted)
    looked.answer(last)
    assert max(looked.per_turn) <= PARKED_SLICE
    assert [key for key in looked.routed if key == wanted[0]] == wanted[::2]
    assert [key for key in looked.routed if key == wanted[1]] == wanted[1::2]
    looked.world.run_for(1)
    assert [looked.world.stream_length(key) for key in wanted[:2]] == [len(wanted) // 2] * 2


def test_what_waited_is_refused_in_one_write_for_each_slice(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice of refusals is one write: a system call for each would dominate the cost."""
    looked.twins.away = True
    last = looked.send([(FIRST, None)] * 3 * PARKED_SLICE)
    writes: list[int] = []
    socket = looked.sender.client.socket
    send_messages = socket.send_messages

    def written(payloads: list[bytes]) -> int:
        writes.append(len(payloads))
        return send_messages(payloads)

    monkeypatch.setattr(socket, "send_messages", written)
    looked.answer(last)
    assert sum(writes) == 3 * PARKED_SLICE + 1
    assert len(writes) <= 4


def test_a_look_up_that_fails_is_not_made_again_for_each_slice(looked: Looked) -> None:
    count = 3 * PARKED_SLICE
    last = looked.send([(FIRST, None)] * count)
    looked.twins.away = True
    looked.answer(last)
    assert looked.twins.asked == 1
    assert looked.here.worker is not None
    assert looked.here.worker.metrics.drops[MessageReason.LOOK_UP_FAILED] == count


def test_what_comes_between_slices_waits_behind_them(looked: Looked) -> None:
    key = (FIRST, None)
    looked.send([key] * (3 * PARKED_SLICE))
    looked.twins.answer()
    looked.world.run_until(lambda: looked.routed, 5)
    assert len(looked.routed) <= PARKED_SLICE
    latest = looked.sender.send(key)
    last = looked.sender.ping()
    looked.world.run_until(lambda: last in looked.sender.got, 30)
    receiver = looked.world.connect_live(looked.here, key)
    looked.world.run_until(lambda: len(receiver.got) == 3 * PARKED_SLICE + 1, 30)
    assert receiver.got[-1] == latest.uid
    looked.world.settle()


def test_what_is_around_a_small_message_counts(looked: Looked) -> None:
    """The parsed envelope and its containers count: they are many times the message's bytes."""
    count = 4 * PARKED_BYTES // ITEM_BYTES
    last = looked.send([(FIRST, None)] * count)
    sender = looked.sender.session.sender
    assert sender is not None
    assert len(sender._parked) < count // 2
    looked.answer(last)
    assert len(looked.routed) == count


def test_an_answer_during_a_slice_is_not_lost(looked: Looked) -> None:
    """Without Redis a question is answered at once, before the slice that asked it ends."""
    asks, others = (FIRST, None), (FIRST + 1, None)
    looked.sender.send(asks, tags="fail-fast")
    last = looked.send([others] * (2 * PARKED_SLICE))
    looked.world.crash_redis()
    looked.world.run_for(1)
    looked.twins.answer()
    looked.world.run_for(1)
    sender = looked.sender.session.sender
    assert sender is not None and not sender._asked
    looked.world.heal()
    looked.world.run_until(lambda: last in looked.sender.got, 30)
    assert looked.world.stream_length(asks) == 1
