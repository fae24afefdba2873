"""Cost of one recorded event for the loop of a relay worker, and stalls of the loop by writing.

The recorder is the worker's own, with the thread that writes real segments, and with the process
that packs batches that are handed over; the worker around it is only a stub. Times are CPU times
of the loop's thread alone, so that neither other programs nor the writing thread count.

    python -m tests.bench.recording
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from proto.rmb.types_pb2 import Envelope
from relay.analytics.handover import Handover
from relay.analytics.journal import Journal, Rhythm
from relay.analytics.places import Places
from relay.analytics.recorder import EventRecorder
from relay.analytics.ring import DATA_BYTES
from relay.analytics.sbd_events import SbdEvents
from relay.analytics.writer import BUFFER_BYTES, SegmentWriter
from relay.queues.batch import Batch, QueuePolicy, encode
from relay.queues.destination import Destination
from relay.queues.keys import SessionKey
from rmbsite.logging import settings_of
from tests.support.envelopes import request

PAIRS: Final = 50
BATCH_MESSAGES: Final = 64
BATCHES: Final = 3_000
SENDERS: Final = 5_000
SBD_PACKETS: Final = 8
"""Packets in one read."""
STRANGERS: Final = 100_000
"""Number of pairs; more than a recorder keeps, so it has forgotten each when it recurs."""
STALL_S: Final = 3.0
EVENTS_PER_S: Final = 400_000
"""Events per second while stalls are measured: several times the rate of one worker."""
TICK_S: Final = 0.001


class Origin:
    """Stub of a connection with the attributes that the recorder reads."""

    def __init__(self, key: SessionKey) -> None:
        self.key = key


def batches(pairs: int, senders: int) -> list[Batch]:
    """Return batches of messages between this many pairs of sessions, parsed as in a worker."""
    ends = []
    origins = [Origin((2 * number + 1, "phone")) for number in range(senders)]
    for number in range(pairs):
        destination = Destination((2 * number + 2, None))
        destination.session = SimpleNamespace(destination=destination, memory_mode=True)  # type: ignore[assignment]
        ends.append((destination, origins[number % senders]))
    # All batches share these few: a worker has just read its payloads, so the CPU has cached them.
    payloads = [
        request((1, "phone"), (2, None), bytes(256)).SerializeToString()
        for _ in range(BATCH_MESSAGES)
    ]
    found = []
    turns = itertools.cycle(ends)
    for _ in range(max(1, pairs // BATCH_MESSAGES)):
        batch = Batch()
        for payload in payloads:
            destination, sender = next(turns)
            batch.items.append((destination, payload, sender))  # type: ignore[arg-type]
        nobody: Any = lambda *_: None  # noqa: E731
        batch.encoded = encode(batch, "bench", 1, QueuePolicy(), 0.0, nobody, nobody)
        found.append(batch)
    return found


class Scene:
    """A recorder with its files."""

    def __init__(self, folder: Path) -> None:
        loop = asyncio.get_running_loop()
        writer = SegmentWriter(Places(folder), "bench.example", "worker-0")
        self.journal = Journal(writer, time.time, Rhythm())
        worker: Any = SimpleNamespace(
            loop=loop, boot_id="bench", commit=SimpleNamespace(), metrics=SimpleNamespace(queued=0)
        )
        self.recorder = EventRecorder(worker, self.journal)
        self.handover = Handover(
            {
                **{"root": str(folder), "relay": "bench.example", "worker": "worker-0-packer"},
                **{"fsync": "segment", "rhythm": Rhythm(), "log": settings_of("info")},
            }
        )
        self.handing = EventRecorder(worker, self.journal, self.handover)
        self.journal.start()
        self.handover.start()

    async def settle(self) -> None:
        """Wait until the writer has written everything."""
        self.journal.flush()
        while not self.journal.all_written:
            await asyncio.sleep(TICK_S)

    async def taken(self) -> None:
        """Wait until the packing process has taken everything."""
        while self.handover.waiting_bytes:
            await asyncio.sleep(TICK_S)


async def _cost_ns(scene: Scene, once: Callable[[], int]) -> float:
    """Return the CPU time of the loop's thread for one event, in the quickest tenth of the batches.

    Programs that share a core make the other batches slower, by a factor on a busy machine.

    Args:
        once: records a batch of events, and returns their number.
    """
    costs = []
    for _ in range(BATCHES):
        began = time.thread_time_ns()
        events = once()
        costs.append((time.thread_time_ns() - began) / events)
        # Waiting for the disk, or for a process, is not measured.
        if scene.journal.at > BUFFER_BYTES // 2:
            await scene.settle()
        if scene.handover.waiting_bytes > DATA_BYTES // 4:
            await scene.taken()
    return statistics.quantiles(costs, n=10)[0]


async def _stall_ms(scene: Scene, batch: Batch, ids: list[bytes]) -> tuple[float, float]:
    """Return the longest delay of a loop that wakes each millisecond: idle, and recording."""
    found = []
    for per_tick in (0, max(1, int(EVENTS_PER_S * TICK_S / (2 * BATCH_MESSAGES)))):
        longest = 0.0
        last = began = time.perf_counter()
        while last - began < STALL_S:
            for _ in range(per_tick):
                scene.recorder.committed(batch, ids)
            before = time.perf_counter()
            await asyncio.sleep(TICK_S)
            last = time.perf_counter()
            longest = max(longest, last - before - TICK_S)
        found.append(longest * 1000)
    return found[0], found[1]


async def _measure() -> dict[str, float]:
    ids = [b"%d-0" % (time.time_ns() // 1_000_000)] * BATCH_MESSAGES
    known, fresh = batches(PAIRS, PAIRS), batches(STRANGERS, SENDERS)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="rmbb-") as folder:
        scene = Scene(Path(folder))
        recorder = scene.recorder
        gc.collect()
        gc.freeze()

        def committed(batch: Batch) -> int:
            recorder.committed(batch, ids)
            return 2 * len(ids)

        def handed_over(batch: Batch) -> int:
            scene.handing.committed(batch, ids)
            return 2 * len(ids)

        found["handed_ns"] = await _cost_ns(scene, lambda: handed_over(known[0]))
        found["memory_ns"] = await _cost_ns(scene, lambda: committed(known[0]))
        turns = itertools.cycle(fresh)
        found["strangers_ns"] = await _cost_ns(scene, lambda: committed(next(turns)))
        session: Any = SimpleNamespace(destination=known[0].items[0][0])
        payloads = [payload for _, payload, _ in known[0].items]
        envelopes = list(map(Envelope.FromString, payloads))

        def written() -> int:
            recorder.written(session, payloads, ids, envelopes)
            return len(ids)

        found["stream_ns"] = await _cost_ns(scene, written)
        packets = SbdEvents("bench", scene.journal)
        keys = [bytes([number]) * 32 for number in range(PAIRS)]

        def forwarded(count: int) -> int:
            """Let each client send `count` packets to the next one in one read of its socket."""
            for source, target in itertools.pairwise(keys):
                packets.forwarded(source, {target: [bytes(288)] * count}, count)
            return count * (PAIRS - 1)

        found["sbd_ns"] = await _cost_ns(scene, lambda: forwarded(SBD_PACKETS))
        found["sbd_single_ns"] = await _cost_ns(scene, lambda: forwarded(1))
        found["idle_stall_ms"], found["stall_ms"] = await _stall_ms(scene, known[0], ids)
        found["lost"] = float(sum(scene.journal.lost))
        await scene.handover.close()
        await scene.journal.close()
    return found


def measure() -> dict[str, float]:
    """Return the costs of an event in nanoseconds, and the longest stalls of the loop.

    The events are: handed over; packed by the worker, between sessions that exchange messages all
    the time and between ones that never did before; from a stream; of SBD, several packets or one
    in a read. The stalls, in milliseconds, are those without events and with.
    """
    return asyncio.run(_measure())


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:16} {value:10.2f}")
