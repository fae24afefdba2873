"""The process that packs the events of one worker; see `relay.analytics.handover`.

It ends after the worker has closed its end of the pipe and all events are written. Until then it
ignores signals.

It shares its cores with Redis, for whose answers the worker waits. So it runs at a low priority and
yields the processor every few messages. Otherwise, on two cores, it would cost the worker as much
time as it saves.
"""

from __future__ import annotations

import dataclasses
import json
import logging.config
import math
import os
import select
import signal
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import hiredis
from xxhash import xxh3_64_intdigest

from proto.rmb.types_pb2 import Envelope
from relay.analytics.handover import COMMITTED, IGNORED, UNWRITTEN
from relay.analytics.journal import Journal, Rhythm
from relay.analytics.packing import ENDS, ROWS_OF_ONE, SUFFIX, Tail, Taken, pack
from relay.analytics.places import Places
from relay.analytics.records import NO_NAME, Kind
from relay.analytics.ring import Record, Ring
from relay.analytics.uids import KIND_SEEDS, message_uid, pair_seed
from relay.analytics.writer import SegmentWriter

MAX_SENDERS: Final = 50_000
"""Maximum number of cached tails, one for each sender, stream and kind; above it, the cache is
cleared."""
NICENESS: Final = 10
GIVE_WAY_EVERY: Final = 16
"""Number of messages after which the process yields the processor."""
BEHIND_S: Final = 1.0
"""Maximum seconds between the recording of an event and its publication in the ring."""
_WAKE_BYTES: Final = 4096


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings from the worker, passed as JSON in the only argument.

    Attributes:
        memory: file descriptor of the ring.
        wake: file descriptor of the pipe that wakes this process.
        root: root folder of the analytics.
        relay, worker: names of the relay and of this process.
        fsync: as for `SegmentWriter`.
        rhythm: `flush_s`, `segment_s`, `segment_bytes`.
        log: configuration for `logging.config.dictConfig`.
    """

    memory: int
    wake: int
    root: str
    relay: str
    worker: str
    fsync: str
    rhythm: tuple[float, float, int]
    log: dict[str, Any]


class Packer:
    """Packs the records of a ring as rows.

    Attributes:
        journal: journal that the rows are packed into.
        complete_s: time in seconds since 1970; all events recorded before it have been packed.
    """

    def __init__(self, writer: SegmentWriter, rhythm: Rhythm) -> None:
        """
        Args:
            writer: writer of the segments.
            rhythm: how often segments are written and closed.
        """
        self.complete_s = time.time() - BEHIND_S
        self.journal = journal = Journal(writer, lambda: self.complete_s, rhythm)
        self._tails: dict[tuple[int, str, bytes, str | None], Tail] = {}
        self._fresh: Taken | None = None
        journal.on_close = self._tails.clear

    def take_all(self, ring: Ring) -> None:
        """Pack all published records of the ring."""
        until_s = time.time() - BEHIND_S
        for record in ring.take():
            self.take(record)
        self.complete_s = until_s

    def take(self, record: Record) -> None:
        """Pack the rows of one record."""
        if record.what == COMMITTED:
            self._committed(record)
        elif record.what == UNWRITTEN and self._fresh is not None:
            self._fresh.queue_uids(map(_uid_of, _commands(record.data)()))

    def _committed(self, record: Record) -> None:
        journal, tails = self.journal, self._tails
        self.complete_s = record.now_us / 1e6 - BEHIND_S  # if a full buffer is handed over now
        journal.reserve(ROWS_OF_ONE * record.messages)
        parse, digest, give_way = Envelope.FromString, xxh3_64_intdigest, os.sched_yield
        start = 4 * record.more
        uids: list[int] = []
        sizes: list[int] = []
        ends: list[bytes] = []
        errors: list[int] = []
        command = _commands(record.data, start)
        command()  # MULTI
        for number in range(record.messages):
            _, stream, *_, payload = command()
            envelope = parse(payload)
            source, kind = envelope.source, envelope.WhichOneof("message")
            key = source.twin, source.connection, stream, kind
            try:
                end, seed = tails[key]
            except KeyError:
                end, seed = self._look_up(key, envelope.destination.twin)
            if kind == "error":
                errors.append(number)
            uids.append(digest(envelope.uid, seed))
            sizes.append(len(payload))
            ends.append(end)
            if not number % GIVE_WAY_EVERY:
                give_way()
        self._fresh = taken = pack(journal, record.now_us, record.latency_us, uids, sizes, ends)
        taken.note_errors(errors)
        taken.queue(array("I", record.data[:start]))

    def _look_up(self, key: tuple[int, str, bytes, str | None], target: int) -> Tail:
        if len(self._tails) >= MAX_SENDERS:
            self._tails.clear()
        twin, name, _, kind = key
        end = ENDS.pack(twin, target, self.journal.session_code(name), NO_NAME)
        found = self._tails[key] = (
            end + SUFFIX[Kind.ACCEPTED],
            pair_seed(twin, target) ^ KIND_SEEDS[kind],
        )
        return found


def _commands(data: bytes, start: int = 0) -> Callable[[], list[bytes]]:
    """Return a function that returns the words of one encoded command after another."""
    reader = hiredis.Reader()
    reader.feed(data, start)
    return reader.gets


def _uid_of(payload: bytes) -> int:
    envelope = Envelope.FromString(payload)
    source, target = envelope.source.twin, envelope.destination.twin
    return message_uid(source, target, envelope.WhichOneof("message"), envelope.uid)


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack what the worker hands over until the worker has ended."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    (told,) = sys.argv[1:] if arguments is None else arguments
    settings = Settings(**json.loads(told))
    logging.config.dictConfig(settings.log)
    os.nice(NICENESS)
    rhythm = Rhythm(*settings.rhythm)
    ring = Ring(settings.memory)
    writer = SegmentWriter(
        *(Places(Path(settings.root)), settings.relay, settings.worker, settings.fsync),
        rhythm.flush_s,
    )
    packer = Packer(writer, rhythm)
    journal = packer.journal
    journal.begin()
    # Not `select`, which refuses high file descriptors, as this pipe may have.
    pipe = select.poll()
    pipe.register(settings.wake, select.POLLIN)
    due = time.monotonic() + rhythm.flush_s
    while True:
        awake = pipe.poll(max(0, math.ceil((due - time.monotonic()) * 1000)))
        over = bool(awake) and not os.read(settings.wake, _WAKE_BYTES)
        packer.take_all(ring)
        if over:
            break
        if time.monotonic() >= due:
            due = time.monotonic() + rhythm.flush_s
            journal.flush()
            ring.tell(journal.counts())
    journal.finish()
    ring.tell(journal.counts())
    return 0


if __name__ == "__main__":
    sys.exit(main())
