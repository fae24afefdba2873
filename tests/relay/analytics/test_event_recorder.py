"""The events that a worker's recorder makes of its input, with the real journal and its files, both
packed by the worker itself and handed over in batches to a real process.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hiredis
import pytest

from proto.rmb import types_pb2 as pb
from proto.rmb.reasons import MessageReason, SessionReason
from relay.analytics import recorder as recorders
from relay.analytics.handover import Handover
from relay.analytics.journal import Journal, Rhythm
from relay.analytics.packing import COLUMNS_FROM, ROWS_OF_ONE
from relay.analytics.places import Places
from relay.analytics.recorder import EventRecorder
from relay.analytics.uids import session_uid
from relay.analytics.writer import BUFFER_RECORDS, SegmentWriter
from relay.federation.arrival import Arrival
from relay.queues.batch import Batch, QueuePolicy, encode
from relay.queues.commit import BATCH_MESSAGES
from relay.queues.destination import Destination
from tests.relay.analytics import handovers
from tests.support.envelopes import request
from tests.support.recorded import Row, as_signed, of_message, rows

NOW = 1_800_000_000.0
TOOK_S = 0.25


class Connection:
    """A sending connection, as far as the recorder uses it."""

    mark = None
    gone = False

    def __init__(self, twin: int, name: str | None = None) -> None:
        self.key = twin, name


class Held:
    """A session in memory mode, as far as the recorder uses it."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.sender = Connection(*destination.key)
        self.memory_mode = True
        self.epoch = 17


class Scene:
    """A worker as far as the recorder uses it: twin 2 is connected, twin 3 is not."""

    def __init__(self, folder: Path, handover: Handover | None) -> None:
        self.lake = folder
        self.handover = handover
        self.now = NOW
        self.here, self.away = Destination((2, None)), Destination((3, "x"))
        self.session: Any = self.connect(self.here)
        self.worker: Any = SimpleNamespace(
            boot_id="boot",
            commit=SimpleNamespace(),
            loop=SimpleNamespace(time=lambda: 10 + TOOK_S),
            metrics=SimpleNamespace(queued=0),
        )
        writer = SegmentWriter(Places(folder), "a.example", "worker-0")
        self.journal = Journal(writer, lambda: self.now, Rhythm(flush_s=3600, segment_s=3600))
        self.recorder = EventRecorder(self.worker, self.journal, handover)
        self.sender: Any = Connection(1, "phone")

    def connect(self, destination: Destination) -> Any:
        session: Any = Held(destination)
        destination.session = session
        return session

    def batch(self, *messages: tuple[Any, Destination, pb.Envelope]) -> Batch:
        """Return a committed batch, and count its messages that the worker does not write now."""
        batch = Batch()
        batch.since = 10.0
        for sender, destination, envelope in messages:
            batch.items.append((destination, envelope.SerializeToString(), sender))
            batch.mixed = batch.mixed or not isinstance(sender, Connection)
            session = destination.session
            self.worker.metrics.queued += session is None or not session.memory_mode
        nobody: Any = lambda *_: None  # noqa: E731
        batch.encoded = encode(batch, "boot", 1, QueuePolicy(), 0.0, nobody, nobody)
        return batch

    def ask(self, destination: Destination) -> pb.Envelope:
        return request(self.sender.key, destination.key, b"x")

    async def rows(self) -> list[Row]:
        if self.handover is not None:
            await self.handover.close()
        await self.journal.close()
        return rows(self.lake)


@pytest.fixture
async def alone(tmp_path: Path) -> Scene:
    """Return a worker that packs events itself."""
    scene = Scene(tmp_path, None)
    scene.journal.start()
    return scene


@pytest.fixture(params=["packs itself", "hands over"])
async def scene(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    handover = handovers.start(tmp_path) if request.param == "hands over" else None
    scene = Scene(tmp_path, handover)
    scene.journal.start()
    yield scene
    if handover is not None:
        await handover.close()


def error(source: Any, destination: Any, text: str) -> pb.Envelope:
    envelope = request(source, destination)
    envelope.error.message = text
    return envelope


def _ids(count: int) -> list[Any]:
    return [b"1800000000000-%d" % number for number in range(count)]


def _told(found: list[Row], envelope: pb.Envelope) -> list[str]:
    return [row.kind for row in of_message(found, envelope)]


@pytest.mark.parametrize("count", [1, COLUMNS_FROM - 1, COLUMNS_FROM, 100])
async def test_row_by_row_and_column_by_column_are_the_same(scene: Scene, count: int) -> None:
    """Both ways record the same events of a batch with sizes, seeds and sessions of all kinds."""
    chance = random.Random(count)
    messages = []
    for number in range(count):
        source = chance.choice([1, 2**31, 2**32 - 1]), chance.choice([None, "", "phone", "ü" * 9])
        target = Destination((chance.choice([1, 2**32 - 1]), None))
        scene.connect(target)
        envelope = request(source, target.key, bytes(chance.randrange(300)), uid=f"{number}")
        messages.append((Connection(*source), target, envelope))
    scene.recorder.committed(scene.batch(*messages), _ids(count))
    found = await scene.rows()
    assert len(found) == 2 * count
    for sender, target, envelope in messages:
        taken, given = of_message(found, envelope)
        for row in (taken, given):
            assert (row.source, row.session) == (sender.key[0], sender.key[1] or "")
            assert row.destination == target.key[0]
            assert row.size_bytes == len(envelope.SerializeToString())
            assert (row.reason, row.remote, row.relay) == ("none", None, "a.example")
        assert (taken.kind, taken.at_us, taken.latency_us) == (
            "accepted",
            NOW * 1e6 - 250_000,
            None,
        )
        assert (given.kind, given.at_us, given.latency_us) == ("delivered", NOW * 1e6, 250_000)


@pytest.mark.parametrize("others", [0, 20])
async def test_what_is_not_written_at_once_waits(scene: Scene, others: int) -> None:
    more = [(scene.sender, scene.here, scene.ask(scene.here)) for _ in range(others)]
    written, waits = scene.ask(scene.here), scene.ask(scene.away)
    batch = scene.batch(
        (scene.sender, scene.here, written), (scene.sender, scene.away, waits), *more
    )
    scene.recorder.committed(batch, _ids(len(batch.items)))
    after = scene.ask(scene.here)
    scene.recorder.committed(scene.batch((scene.sender, scene.here, after)), _ids(1))
    assert (scene.recorder._fresh is None) == (scene.handover is not None)
    found = await scene.rows()
    assert _told(found, written) == ["accepted", "delivered"]
    assert _told(found, waits) == ["accepted", "queued"]
    assert of_message(found, waits)[1].latency_us is None
    assert _told(found, after) == ["accepted", "delivered"]
    assert all(_told(found, each) == ["accepted", "delivered"] for _, _, each in more)


@pytest.mark.parametrize("others", [0, 20])
async def test_what_redis_did_not_take_was_only_dropped(scene: Scene, others: int) -> None:
    more = [(scene.sender, scene.here, scene.ask(scene.here)) for _ in range(others)]
    written, waits, unstored = scene.ask(scene.here), scene.ask(scene.away), scene.ask(scene.here)
    batch = scene.batch(
        (scene.sender, scene.here, written),
        (scene.sender, scene.away, waits),
        (scene.sender, scene.here, unstored),
        *more,
    )
    batch.refused = True
    ids = _ids(len(batch.items))
    ids[2] = hiredis.ReplyError("OOM")
    scene.recorder.committed(batch, ids)
    scene.recorder.dropped(scene.sender, unstored, MessageReason.STORAGE_FULL)
    after = scene.ask(scene.here)
    scene.recorder.committed(scene.batch((scene.sender, scene.here, after)), _ids(1))
    found = await scene.rows()
    assert _told(found, written) == ["accepted", "delivered"]
    assert _told(found, waits) == ["accepted", "queued"]
    assert of_message(found, waits)[1].latency_us is None
    assert _told(found, unstored) == ["dropped"]
    assert _told(found, after) == ["accepted", "delivered"]
    assert all(_told(found, each) == ["accepted", "delivered"] for _, _, each in more)


async def test_a_batch_that_was_found_applied_waits_as_a_whole(scene: Scene) -> None:
    asked = scene.ask(scene.here)
    scene.recorder.committed(scene.batch((scene.sender, scene.here, asked)), None)
    assert _told(await scene.rows(), asked) == ["accepted", "queued"]


async def test_what_did_not_fit_into_its_socket_is_delivered_once(scene: Scene) -> None:
    asked = [scene.ask(scene.here) for _ in range(3)]
    batch = scene.batch(*((scene.sender, scene.here, each) for each in asked))
    scene.recorder.committed(batch, _ids(3))
    late = [each.SerializeToString() for each in asked[1:]]
    scene.recorder.unwritten(scene.session, late)
    scene.now += 2
    scene.recorder.written(scene.session, late, _ids(2), asked[1:])
    found = await scene.rows()
    assert _told(found, asked[0]) == ["accepted", "delivered"]
    for each in asked[1:]:
        assert _told(found, each) == ["accepted", "queued", "delivered"]
        assert of_message(found, each)[2].latency_us == 2_000_000


async def test_what_other_relays_brought(scene: Scene) -> None:
    partner: Any = SimpleNamespace(domain="b.example")
    brought, local = request((9, "far"), (2, None), b"x"), scene.ask(scene.here)
    client: Any = SimpleNamespace(disconnected=False)
    arrival = Arrival(brought.SerializeToString(), partner, client)
    arrival.key = 9, "far"
    batch = scene.batch((arrival, scene.here, brought), (scene.sender, scene.here, local))
    scene.recorder.committed(batch, _ids(2))
    scene.recorder.turned_away(brought, MessageReason.BAD_SIGNATURE, "b.example")
    scene.recorder.turned_away(None, MessageReason.UNPARSABLE, "b.example")
    found = await scene.rows()
    came, given = of_message(found, brought)
    assert (came.kind, came.remote, came.session) == ("federated_in", "b.example", "far")
    assert (given.kind, given.remote, given.session) == ("delivered", None, "far")
    assert [row.remote for row in of_message(found, local)] == [None, None]
    refused = [row for row in found if row.kind == "dropped"]
    assert {(row.source, row.reason, row.remote) for row in refused} == {
        (0, "bad_signature", "b.example"),
        (0, "unparsable", "b.example"),
    }


async def test_errors_of_twins_and_of_the_relay(scene: Scene) -> None:
    of_twin = error(scene.sender.key, scene.here.key, "no")
    of_relay = error((7, None), scene.here.key, "expired")
    batch = scene.batch((scene.sender, scene.here, of_twin), (None, scene.here, of_relay))
    scene.recorder.committed(batch, _ids(2))
    found = await scene.rows()
    assert _told(found, of_twin) == ["accepted", "error", "delivered"]
    assert _told(found, of_relay) == ["error", "delivered"]


async def test_what_ends_in_a_queue(scene: Scene) -> None:
    old, displaced = scene.ask(scene.away), scene.ask(scene.away)
    scene.recorder.trimmed(b"1-0", old.SerializeToString(), MessageReason.QUEUE_EXPIRED)
    scene.recorder.trimmed(b"1-0", b"\xff", MessageReason.QUEUE_EXPIRED)
    entries = [
        [b"1-1", [b"other", b"", b"_", displaced.SerializeToString()]],
        [b"1-2", [b"x", b""]],
    ]
    scene.worker.commit.displaced(entries)
    found = await scene.rows()
    assert [(row.kind, row.reason) for row in of_message(found, old)] == [
        ("dropped", "queue_expired")
    ]
    (row,) = of_message(found, displaced)
    assert (row.reason, row.source, row.destination, row.session) == ("queue_full", 1, 3, "phone")
    assert len(found) == 2


async def test_sessions(scene: Scene) -> None:
    other = scene.connect(Destination((5, "tab")))
    scene.recorder.opened(scene.session)
    scene.recorder.opened(other)
    scene.now += 7
    scene.recorder.closed(scene.session, SessionReason.IDLE)
    scene.recorder.closed(scene.session, SessionReason.IDLE)
    scene.recorder.closed(scene.connect(Destination((6, None))), SessionReason.CAPACITY)
    found = await scene.rows()
    opened = {row.source: row for row in found if row.kind == "session_open"}
    assert opened[2].uid == as_signed(session_uid("boot", (2, None), scene.session.epoch))
    assert opened[5].uid == as_signed(session_uid("boot", (5, "tab"), other.epoch))
    (closed,) = [row for row in found if row.kind == "session_close"]
    assert opened[2].uid == closed.uid != opened[5].uid
    assert (closed.latency_us, closed.reason, closed.destination) == (7_000_000, "idle", 0)
    assert opened[5].session == "tab"


async def test_names_begin_anew_with_each_segment(alone: Scene) -> None:
    scene = alone
    asked = []
    for turn in range(3):
        for name in ("a", f"b{turn}"):
            sender = Connection(1, name)
            envelope = request(sender.key, scene.here.key, b"x")
            asked.append((name, envelope))
            scene.recorder.committed(scene.batch((sender, scene.here, envelope)), _ids(1))
            scene.recorder.written(
                scene.session, [envelope.SerializeToString()], _ids(1), [envelope]
            )
        scene.now += 4000
        scene.journal.flush()
        scene.now += 4000
        scene.journal.flush()
    found = await scene.rows()
    assert len(list(scene.lake.glob("segments/*.seg"))) == 3
    for name, envelope in asked:
        assert [row.session for row in of_message(found, envelope)] == [name] * 3


async def test_pairs_are_forgotten_with_their_connection_and_bounded(
    alone: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = alone
    monkeypatch.setattr(recorders, "MAX_PAIRS", 8)
    recorder = scene.recorder
    for number in range(20):
        target = Destination((100 + number, None))
        envelope = request(scene.sender.key, target.key, b"x")
        recorder.committed(scene.batch((scene.sender, target, envelope)), _ids(1))
        assert recorder._count == len(recorder._pairs["request"][scene.sender]) <= 8
    scene.session.sender = scene.sender
    recorder.closed(scene.session, SessionReason.IDLE)
    assert recorder._count == 0
    assert not any(recorder._pairs.values())
    await scene.rows()


def test_the_largest_batch_fits_into_a_buffer() -> None:
    assert BATCH_MESSAGES * ROWS_OF_ONE <= BUFFER_RECORDS
