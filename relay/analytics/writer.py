"""The thread that brings packed events into segment files.

A recorder packs events into a buffer and hands it over, full or after a moment; here it becomes one
block of the open segment. Nothing of this holds the recorder up: what takes long (the checksum, the
write, a sync) is done without the interpreter's lock, and when this thread does not keep up, the
recorder runs out of buffers and counts what it cannot keep.

Where the disk refuses, the segment is closed after its last whole block, and the same buffer is
tried again with a new one, until the disk takes it or the process ends.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from relay.analytics import backlog, gaps
from relay.analytics.gaps import Gap, Why
from relay.analytics.places import DRAFT, Places
from relay.analytics.records import FIRST_NAMES, KINDS, RECORD_BYTES, SBD
from relay.analytics.segments import (
    BLOCK,
    OPEN_SUFFIX,
    SUFFIX,
    TABLES,
    Header,
    Pace,
    Type,
    block,
    header_block,
    lock,
    names_block,
    sync_folder,
)

log = logging.getLogger(__name__)

BUFFER_RECORDS: Final = 21_845
BUFFER_BYTES: Final = BUFFER_RECORDS * RECORD_BYTES
"""1 MiB of events."""
MAX_BUFFERS: Final = 9
"""One that fills, and eight that wait to be written."""
NAMES_AT_ONCE: Final = 1_000
"""In one block: even if each is as long as it may be and all of it is escaped, it stays small."""
OLD_DRAFT_S: Final = 60.0
"""Whoever made a file that was not begun for so long is dead."""
RETRY_S: Final = 1.0
"""Pause after the disk refused."""
CLOSE_S: Final = 5.0
"""How long an end waits for this thread."""

_KIND_AT: Final = RECORD_BYTES - 2
_MAX_PARTS: Final = 1024
"""Pieces one call of `writev` takes."""


class Job(NamedTuple):
    """What a recorder hands over.

    Attributes:
        buffer: with records; None where there are none.
        used: bytes of it that are records.
        until_us: all that happened before is in this one, or was in those before.
        names: those that are new, by table.
        close: the segment ends with this.
        gap: what was lost before this.
    """

    buffer: bytearray | None
    used: int
    until_us: int
    names: dict[str, list[str]]
    close: bool
    gap: Gap | None

    @property
    def from_us(self) -> int:
        """When the first of it happened."""
        if self.buffer is None or not self.used:
            return self.until_us
        return int.from_bytes(self.buffer[:8], "little", signed=True)


class _Segment:
    """The segment that is written.

    Attributes:
        file: that is open, and locked.
        end: where its last whole block ends.
        records: in it.
        from_us: up to when all that was recorded is in files before it.
    """

    def __init__(self, file: int, path: Path, end: int, from_us: int) -> None:
        self.file = file
        self.path = path
        self.end = end
        self.from_us = from_us
        self.records = 0
        self._marked = False  # its last block is a mark

    def append(self, parts: list[bytes | memoryview]) -> None:
        """Writes blocks behind those there are.

        Raises:
            OSError: the disk refused; a part may be written.
        """
        size = sum(map(len, parts))
        written = os.writev(self.file, parts) if len(parts) <= _MAX_PARTS else 0
        if written < size:  # a disk that is nearly full takes a part, then refuses
            rest = memoryview(b"".join(parts))[written:]
            while rest:
                rest = rest[os.write(self.file, rest) :]
        self.end += size
        self._marked = False

    def mark(self, parts: list[bytes | memoryview], until_us: int) -> None:
        """Says behind the blocks that nothing more happened; an idle day makes no file grow."""
        mark = block(Type.MARK, b"", until_us)
        if self._marked and not parts:
            os.pwrite(self.file, mark[0], self.end - BLOCK.size)
        else:
            self.append([*parts, *mark])
            self._marked = True


class SegmentWriter:
    """Writes the segments of one process.

    Attributes:
        free: buffers that may be filled again.
        written: events in segments, by kind.
        lost: events that the disk did not take before the process ended, by kind.
        failures: times the disk refused.
    """

    def __init__(
        self,
        places: Places,
        relay: str,
        worker: str,
        fsync: str = "segment",
        flush_s: float = 1.0,
        held_beside: int = 0,
    ) -> None:
        """
        Args:
            places: the folders of the analytics.
            relay: name of this relay.
            worker: of this process; with the relay's it tells files apart.
            fsync: `flush`, `segment` or `off`.
            flush_s: how often something is handed over.
            held_beside: most rows of this process that wait somewhere before they are handed over.
        """
        self.relay = relay
        self.worker = worker
        self.free: deque[bytearray] = deque()
        self.written = [0] * len(KINDS)
        self.lost = [0] * len(KINDS)
        self.failures = 0
        self._lake = places
        self._folder = places.segments
        self._fsync = fsync
        self._flush_s = flush_s
        self._pace = Pace(int(flush_s * 1e6), MAX_BUFFERS * BUFFER_RECORDS + held_beside)
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._ending = threading.Event()
        self._segment: _Segment | None = None
        self._names: dict[str, list[str]] = {table: [] for table in TABLES}
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begins; what a process before this one left open is recovered first."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Hands something over."""
        self._jobs.put(job)

    def close(self) -> None:
        """Writes what was handed over and closes the segment; waits for that, within bounds."""
        self._ending.set()
        self._jobs.put(None)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            log.error("events: the disk does not answer, some may be lost")

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            backlog.close_dead(self._lake, backlog.silence_s(self._flush_s))
            _remove_drafts(self._folder)
        except (OSError, ValueError) as error:
            log.error("events: what was left open cannot be recovered: %s", error)
        while (job := self._jobs.get()) is not None:
            self._take(job)
            if job.buffer is not None:
                self.free.append(job.buffer)
        with contextlib.suppress(OSError):
            self._close_segment()

    def _take(self, job: Job) -> None:
        for table, names in job.names.items():
            self._names[table] += names
        tally = self.written if self._store(job) else self.lost
        if job.buffer is not None:
            for kind, count in enumerate(count_kinds(job.buffer, job.used)):
                tally[kind] += count
        if job.close:
            self._names = {table: [] for table in TABLES}

    def _store(self, job: Job) -> bool:
        """Writes a job, however long the disk refuses; False if the process ends before."""
        while True:
            try:
                self._write(job)
            except OSError as error:
                self.failures += 1
                self._complain(error)
                self._give_segment_up()
                if self._ending.is_set():
                    self._lose(job)
                    return False
                self._ending.wait(RETRY_S)
            else:
                self._complaint = ""
                return True

    def _lose(self, job: Job) -> None:
        lost = job.used // RECORD_BYTES
        if job.buffer is None or not lost:
            return
        log.error("events: %d are lost, the disk did not take them", lost)
        gap = Gap(self.relay, self.worker, job.from_us, job.until_us, lost, Why.DISK)
        with contextlib.suppress(OSError):
            gaps.write(self._lake.root, gap)

    def _write(self, job: Job) -> None:
        """Brings a job into the open segment, whole or not at all."""
        if job.gap is not None:
            gaps.write(self._lake.root, job.gap)
        new = job.names
        if self._segment is None:
            self._open(job.from_us)
            new = self._names
        segment = self._segment
        assert segment is not None
        parts: list[bytes | memoryview] = []
        for table, names in new.items():
            first = len(FIRST_NAMES) + len(self._names[table]) - len(names)
            for start in range(0, len(names), NAMES_AT_ONCE):
                some = names[start : start + NAMES_AT_ONCE]
                parts.append(names_block(table, first + start, some, 0))
        if job.buffer is not None and job.used:
            parts += block(Type.RECORDS, memoryview(job.buffer)[: job.used], job.until_us)
            segment.append(parts)
            segment.records += job.used // RECORD_BYTES
        else:
            segment.mark(parts, job.until_us)
        if job.close:
            self._next_segment(job.until_us)
        elif self._fsync == "flush" and job.used:
            self._sync(segment)

    def _open(self, until_us: int) -> None:
        header = Header(self.relay, self.worker, time.time_ns() // 1000, pace=self._pace)
        path = self._folder / (header.name + OPEN_SUFFIX)
        draft = self._folder / f"{DRAFT}{header.name}"
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Only a file with its header and lock gets a name that others look at.
            if not lock(opened):
                raise OSError(errno.EAGAIN, "somebody has the lock of a new file", str(draft))
            start = header_block(header, until_us)
            if os.write(opened, start) < len(start):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(draft))
            draft.rename(path)
        except OSError:
            os.close(opened)
            draft.unlink(missing_ok=True)
            raise
        self._segment = _Segment(opened, path, len(start), until_us)

    def _next_segment(self, until_us: int) -> None:
        """Closes the segment when the next one is there: of a process that is killed between the
        two nobody would know that it lived."""
        former, self._segment = self._segment, None
        if former is not None:
            took_us = max(0, until_us - former.from_us)
            self._pace = self._pace._replace(before_records=former.records, before_us=took_us)
        try:
            if not self._ending.is_set():
                self._open(until_us)
        except OSError as error:
            self._complain(error)  # the next write tries again
        self._close(former)

    def _close_segment(self) -> None:
        former, self._segment = self._segment, None
        self._close(former)

    def _close(self, segment: _Segment | None) -> None:
        """Closes a segment; one without records is of no use."""
        if segment is None:
            return
        path = segment.path
        try:
            if not segment.records:
                path.unlink()
                return
            if self._fsync != "off":
                os.fsync(segment.file)
            path.rename(path.with_name(path.name.removesuffix(OPEN_SUFFIX) + SUFFIX))
            if self._fsync != "off":
                sync_folder(self._folder)
        except OSError as error:
            # What was written is in the file; whoever recovers it closes it.
            log.error("events: %s cannot be closed: %s", path.name, error)
        finally:
            os.close(segment.file)

    def _give_segment_up(self) -> None:
        """The disk refused in the middle of something: what is whole so far stays."""
        if self._segment is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._segment.file, self._segment.end)
            self._close_segment()

    def _sync(self, segment: _Segment) -> None:
        try:
            os.fsync(segment.file)
        except OSError as error:
            # The records are in the file: written again they would be there twice.
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        """Says once what is wrong, not each second."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.error("events cannot be written, they wait: %s", error)


def _remove_drafts(folder: Path) -> None:
    """Removes files that were never begun: a process that lives makes segments of them at once."""
    for draft in folder.glob(f"{DRAFT}*"):
        with contextlib.suppress(FileNotFoundError):
            if abs(time.time() - draft.stat().st_mtime) > OLD_DRAFT_S:
                draft.unlink()


def count_kinds(buffer: bytearray, used: int) -> list[int]:
    """How many records of each kind are in a buffer."""
    kinds = buffer[_KIND_AT:used:RECORD_BYTES]
    return [kinds.count(kind) + kinds.count(kind | SBD) for kind in range(len(KINDS))]
