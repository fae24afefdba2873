"""The thread that writes packed events to segment files.

A recorder packs events into a buffer and hands it over when it is full or after a short time; the
thread writes it as one block of the open segment. This does not delay the recorder: slow steps
(checksum, write, sync) run without the interpreter's lock, and if the thread does not keep up, the
recorder runs out of buffers and counts the events that it cannot keep.

If the disk refuses a write, the thread closes the segment after its last complete block, and tries
the same buffer again with a new segment, until the disk accepts it or the process ends.
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
"""Size of a buffer: 1 MiB of events."""
MAX_BUFFERS: Final = 9
"""Maximum number of buffers: one that is filled, and eight that wait to be written."""
NAMES_AT_ONCE: Final = 1_000
"""Maximum names in one block; the block stays small even with the longest, all escaped."""
OLD_DRAFT_S: Final = 60.0
"""Age of a draft, in seconds, after which the process that created it is considered dead."""
RETRY_S: Final = 1.0
"""Seconds between two attempts after the disk refused a write."""
CLOSE_S: Final = 5.0
"""Maximum seconds that `SegmentWriter.close` waits for the thread."""

_KIND_AT: Final = RECORD_BYTES - 2
_MAX_PARTS: Final = 1024
"""Maximum number of parts that one call of `writev` accepts."""


class Job(NamedTuple):
    """A buffer that a recorder hands over.

    Attributes:
        buffer: buffer with records; None without records.
        used: number of its bytes that are records.
        until_us: time up to which all events are in this job or in earlier ones.
        names: new names, by table.
        close: whether the segment ends with this job.
        gap: events lost before this job.
    """

    buffer: bytearray | None
    used: int
    until_us: int
    names: dict[str, list[str]]
    close: bool
    gap: Gap | None

    @property
    def from_us(self) -> int:
        """Time of its first event."""
        if self.buffer is None or not self.used:
            return self.until_us
        return int.from_bytes(self.buffer[:8], "little", signed=True)


class _Segment:
    """The open segment.

    Attributes:
        file: file descriptor, which is open and locked.
        end: end of its last complete block.
        records: number of its records.
        from_us: time up to which all events are in earlier files.
    """

    def __init__(self, file: int, path: Path, end: int, from_us: int) -> None:
        self.file = file
        self.path = path
        self.end = end
        self.from_us = from_us
        self.records = 0
        self._marked = False  # whether its last block is a mark

    def append(self, parts: list[bytes | memoryview]) -> None:
        """Write blocks at the end of the segment.

        Raises:
            OSError: the disk refused the write; a part may be written.
        """
        size = sum(map(len, parts))
        written = os.writev(self.file, parts) if len(parts) <= _MAX_PARTS else 0
        if written < size:  # a nearly full disk accepts a part, then refuses
            rest = memoryview(b"".join(parts))[written:]
            while rest:
                rest = rest[os.write(self.file, rest) :]
        self.end += size
        self._marked = False

    def mark(self, parts: list[bytes | memoryview], until_us: int) -> None:
        """Write a mark that nothing happened, or update the last one: idle files do not grow."""
        mark = block(Type.MARK, b"", until_us)
        if self._marked and not parts:
            os.pwrite(self.file, mark[0], self.end - BLOCK.size)
        else:
            self.append([*parts, *mark])
            self._marked = True


class SegmentWriter:
    """Writer of the segments of one process.

    Attributes:
        free: buffers that may be filled again.
        written: number of events in segments, by kind.
        lost: number of events that the disk did not accept before the process ended, by kind.
        failures: number of writes that the disk refused.
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
            places: folders of the analytics.
            relay: name of this relay.
            worker: name of this process; together with the relay's, it distinguishes files.
            fsync: `flush`, `segment` or `off`.
            flush_s: seconds between two hand-overs.
            held_beside: maximum rows of this process that wait elsewhere before they are handed
                over.
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
        """Start the thread, which first recovers segments that an earlier process left open."""
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Hand a job over to the thread."""
        self._jobs.put(job)

    def close(self) -> None:
        """Write the jobs handed over, and close the segment; wait for at most `CLOSE_S` seconds."""
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
        """Write a job, with retries while the disk refuses; False if the process ends before."""
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
        """Write a job to the open segment, completely or not at all."""
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
            # Only a file with its header and lock gets a name that other processes open.
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
        """Open the next segment, then close the current one.

        In the other order, a process killed between the two steps would leave no trace that it was
        running.
        """
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
        """Close a segment; remove it if it has no records."""
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
            # What was written is in the file; the process that recovers it closes it.
            log.error("events: %s cannot be closed: %s", path.name, error)
        finally:
            os.close(segment.file)

    def _give_segment_up(self) -> None:
        """Close the segment after its last complete block, because the disk refused a write."""
        if self._segment is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._segment.file, self._segment.end)
            self._close_segment()

    def _sync(self, segment: _Segment) -> None:
        try:
            os.fsync(segment.file)
        except OSError as error:
            # The records are in the file: a retry would write them twice.
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        """Log an error once, not at each retry."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.error("events cannot be written, they wait: %s", error)


def _remove_drafts(folder: Path) -> None:
    """Remove drafts of dead processes; a running process turns its draft into a segment at once."""
    for draft in folder.glob(f"{DRAFT}*"):
        with contextlib.suppress(FileNotFoundError):
            if abs(time.time() - draft.stat().st_mtime) > OLD_DRAFT_S:
                draft.unlink()


def count_kinds(buffer: bytearray, used: int) -> list[int]:
    """Return the number of records of each kind in a buffer."""
    kinds = buffer[_KIND_AT:used:RECORD_BYTES]
    return [kinds.count(kind) + kinds.count(kind | SBD) for kind in range(len(KINDS))]
