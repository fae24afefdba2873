"""Events that a worker's recorder notes when something goes wrong on the way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hiredis
import pytest

from proto.rmb.reasons import MessageReason
from relay.queues.batch import Batch
from relay.queues.destination import Destination
from relay.sessions.recorder import Recorder, Recorders
from relay.trace import recorder as recorders
from relay.trace.events import Event
from relay.trace.orders import Kind
from relay.trace.recorder import TraceRecorder
from relay.trace.tracer import Tracer
from tests.relay.trace.test_tracer import NOW, Store, order
from tests.support.envelopes import request


class Scene:
    """A worker with one session, as far as the recorder uses it."""

    def __init__(self) -> None:
        self.store = Store()
        tracer = Tracer(self.store.submit, lambda: True, lambda: NOW, "by", "here")
        tracer.put(order(Kind.TWIN, "2"))
        self.tracer = tracer
        self.destination = Destination((2, None))
        self.session: Any = SimpleNamespace(destination=self.destination, epoch=5, memory_mode=True)
        self.worker: Any = SimpleNamespace(
            commit=SimpleNamespace(applied_number=7, last_commit_s=0.002),
            sessions=[self.session],
        )
        self.recorder = TraceRecorder(self.worker, tracer)
        self.sender: Any = SimpleNamespace(key=(1, None))

    def accept(self, batch: Batch, uid: str) -> Any:
        envelope = request((1, None), (2, None), b"x", uid=uid)
        batch.items.append((self.destination, b"x", self.sender))
        self.recorder.accepted(self.sender, self.destination, envelope, 1, batch)
        return envelope

    def noted(self) -> list[tuple[str, str, str]]:
        self.tracer.flush()
        found: list[Event] = self.store.events()
        self.store.commands.clear()
        return [(event.uid, event.stage.value, event.reason) for event in found]


@pytest.fixture
async def scene() -> Scene:
    return Scene()


async def test_a_batch_that_was_found_applied(scene: Scene) -> None:
    """The ids of such a batch are unknown: the session reads the message from its stream."""
    scene.destination.session = scene.session
    batch = Batch()
    envelope = scene.accept(batch, "u")
    scene.recorder.committed(batch, None)
    assert scene.noted() == [
        *(("u", "accepted", ""), ("u", "committed", ""), ("u", "queued", "catching_up")),
    ]
    scene.recorder.written(scene.session, [b"x"], [b"1-0"], [envelope])
    scene.recorder.acknowledged(scene.session, [(b"1-0", 0)])
    scene.recorder.removed(scene.session, [(b"1-0", 0)])
    scene.recorder.removed(scene.session, [(b"1-0", 0)])
    assert [stage for _, stage, _ in scene.noted()] == ["delivered", "acknowledged", "removed"]


async def test_a_message_that_was_not_stored(scene: Scene) -> None:
    batch = Batch()
    first, _ = scene.accept(batch, "first"), scene.accept(batch, "second")
    scene.recorder.committed(batch, [hiredis.ReplyError("OOM"), b"1-1"])
    scene.recorder.dropped(scene.sender, first, MessageReason.STORAGE_FULL)
    assert scene.noted()[2:] == [
        ("second", "committed", ""),
        ("second", "queued", "not_connected_here"),
        ("first", "refused", "storage_full"),
    ]


async def test_batches_that_were_given_up_are_forgotten(scene: Scene) -> None:
    for number in range(3 * recorders.FORGOTTEN_BATCHES):
        batch = Batch()
        scene.accept(batch, str(number))
        batch.done = True
    assert len(scene.recorder._batches) <= recorders.FORGOTTEN_BATCHES


async def test_deliveries_without_an_end_are_bounded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Open deliveries of closed sessions make room; without room, events are lost and counted."""
    monkeypatch.setattr(recorders, "MAX_OPEN", 10)
    envelope = request((1, None), (2, None))
    gone: Any = SimpleNamespace(destination=Destination((2, "gone")), epoch=1, memory_mode=True)
    for number in range(10):
        scene.recorder.written(gone, [b""], [b"1-%d" % number], [envelope])
    for number in range(12):
        scene.recorder.written(scene.session, [b""], [b"2-%d" % number], [envelope])
    assert scene.recorder._open_count == 10
    assert set(scene.recorder._open) == {"2"}
    assert len(scene.noted()) == 22
    scene.tracer.flush()
    scene.recorder.clear()
    assert scene.recorder._open_count == 0


async def test_what_nobody_fetched_and_what_waits(scene: Scene) -> None:
    envelope = request((1, None), (2, None), b"x", uid="u")
    scene.recorder.waits(scene.sender, scene.destination, b"x", envelope)
    scene.recorder.trimmed(b"1-0", envelope.SerializeToString(), MessageReason.QUEUE_EXPIRED)
    other = request((1, None), (3, None), b"x", uid="other")
    scene.recorder.waits(scene.sender, Destination((3, None)), b"x", other)
    scene.recorder.trimmed(b"2-0", other.SerializeToString(), MessageReason.QUEUE_EXPIRED)
    scene.recorder.trimmed(b"3-0", b"no envelope", MessageReason.QUEUE_EXPIRED)
    assert scene.noted() == [("u", "waits", ""), ("u", "trimmed", "queue_expired")]


async def test_what_is_told_to_be_accepted(scene: Scene) -> None:
    """For each read of a socket, the recorder states the twins whose messages it follows."""
    followed = scene.recorder.followed
    assert [2 in followed((1, None)), 3 in followed((1, None)), 3 in followed((2, ""))] == [
        *(True, False, True),
    ]
    both = Recorders(scene.recorder, Recorder()).followed
    assert [2 in both((1, None)), 3 in both((1, None))] == [True, False]
    assert 3 in Recorders(scene.recorder, scene.recorder).followed((1, None))
