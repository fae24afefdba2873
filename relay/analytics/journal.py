"""The buffer into which a process packs its events, and the numbers that stand for names.

A journal belongs to one event loop. `reserve` makes room, then rows are packed at `at`; the busiest
recorder does that itself, many rows at once. A timer hands over the rows packed so far, so a crash
loses only the latest ones. The journal decides when a segment is closed, not the writer, because
the numbers of names start again with each segment.

Buffers come back when they are written. If none is free, rows that need one are lost: the journal
counts them by kind, and records their time as a gap when a buffer is free again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from proto.sbd.frames import path_of_key
from relay.analytics.gaps import Gap, Why
from relay.analytics.records import (
    FIRST_NAMES,
    KINDS,
    MAX_KEYS,
    MAX_NAME_BYTES,
    MAX_REMOTES,
    MAX_SESSIONS,
    NO_LATENCY,
    NO_NAME,
    RECORD,
    RECORD_BYTES,
    SBD,
    Kind,
)
from relay.analytics.writer import (
    BUFFER_BYTES,
    MAX_BUFFERS,
    Job,
    SegmentWriter,
    count_kinds,
)

MARK_US: Final = 2_000_000
"""Interval of marks in a segment while nothing happens, in microseconds. They limit the gap of a
process that is killed then. Well below `backlog.SILENCE_S`."""

_U64: Final = (1 << 64) - 1


FIGURES: Final = len(KINDS) + 3
"""Number of figures that `Journal.counts` returns."""


def as_figures(counts: list[int]) -> dict[str, float]:
    """Return the result of `Journal.counts` as metrics."""
    *written, pressure, disk, failures = map(float, counts)
    found = {
        f'relay_analytics_events_total{{kind="{kind}"}}': count
        for kind, count in zip(KINDS, written, strict=True)
        if count
    }
    found['relay_analytics_lost_total{reason="pressure"}'] = pressure
    found['relay_analytics_lost_total{reason="disk"}'] = disk
    found["relay_analytics_write_failures_total"] = failures
    return found


class Rhythm(NamedTuple):
    """How often buffers are handed over and segments are closed."""

    flush_s: float = 1.0
    segment_s: float = 10.0
    segment_bytes: int = 64 << 20


class Journal:
    """Buffer of the events of one process.

    Attributes:
        buffer: buffer that is being filled.
        at: position of the next row in it.
        lost: number of events lost for want of a buffer, by kind.
        on_close: function called when the numbers of names become invalid.
    """

    def __init__(
        self, writer: SegmentWriter, clock: Callable[[], float], rhythm: Rhythm | None = None
    ) -> None:
        """
        Args:
            writer: writer that takes filled buffers; started and closed with the journal.
            clock: function that returns seconds since 1970.
            rhythm: how often buffers are handed over and segments are closed.
        """
        self.buffer = bytearray(BUFFER_BYTES)
        self.at = 0
        self.lost = [0] * len(KINDS)
        self.on_close: Callable[[], None] = lambda: None
        self._writer = writer
        self._clock = clock
        self._rhythm = rhythm or Rhythm()
        self._buffers = 1
        self._sessions: dict[str, int] = {"": NO_NAME}
        self._remotes: dict[str, int] = {"": NO_NAME}
        self._keys: dict[bytes, int] = {}
        self._new: dict[str, list[str]] = {}
        self._segment_bytes = 0  # of the records handed over
        self._segment_us = 0  # time at which the first of them was
        self._told_us = 0  # the writer has all events up to this time
        self._gap: tuple[int, int, int] | None = None  # from, to, lost rows
        self._timer: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the writer, and hand over packed rows at regular intervals."""
        self.begin()
        self._tick()

    async def close(self) -> None:
        """Hand over the remaining rows, and wait until they are written."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.to_thread(self.finish)

    def begin(self) -> None:
        """Start without an event loop; the caller hands rows over by `flush`."""
        self._writer.start()

    def finish(self) -> None:
        """Hand over the remaining rows and block until they are written.

        No rows may be packed afterwards.
        """
        self._submit(self.buffer, self.at, self.now_us(), close=True)
        self._writer.close()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._rhythm.flush_s, self._tick)
        self.flush()

    def counts(self) -> list[int]:
        """Return written events by kind, events lost to full buffers and disk, failed writes."""
        writer = self._writer
        return [*writer.written, sum(self.lost), sum(writer.lost), writer.failures]

    def figures(self) -> dict[str, float]:
        """Return the figures for the metrics."""
        return as_figures(self.counts())

    # --- rows ---------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return the current time in microseconds since 1970, as rows have it."""
        return int(self._clock() * 1e6)

    def reserve(self, records: int) -> None:
        """Make room for a number of rows, at most as many as a buffer holds."""
        if self.at + records * RECORD_BYTES > BUFFER_BYTES:
            self._hand_over(self.now_us(), full=True)

    def put(
        self,
        kind: Kind,
        at_us: int,
        uid: int,
        source: int,
        destination: int,
        session: str = "",
        size_bytes: int = 0,
        latency_us: int = NO_LATENCY,
        reason: int = 0,
        remote: str = "",
    ) -> None:
        """Pack one row.

        Args:
            kind: what happened.
            at_us: time of the event, in microseconds since 1970.
            uid: number of the message, from 0 to 2^64 - 1, or signed.
            source, destination: twins.
            session: name of the source's session.
            size_bytes: size of the message.
            latency_us: latency as the schema defines it for the kind.
            reason: number of the reason.
            remote: the partner relay.
        """
        self.reserve(1)
        uid &= _U64
        RECORD.pack_into(
            self.buffer,
            self.at,
            at_us,
            uid - (uid >> 63 << 64),
            size_bytes,
            latency_us,
            source,
            destination,
            self.session_code(session),
            self.remote_code(remote),
            kind,
            reason,
        )
        self.at += RECORD_BYTES

    def put_sbd(
        self,
        kind: Kind,
        at_us: int,
        uid: int,
        key: bytes,
        latency_us: int = NO_LATENCY,
        reason: int = 0,
    ) -> None:
        """Pack one row of an SBD connection; arguments as those of `put`, `key` is the client's.

        `relay.analytics.sbd_events` packs the rows of packets.
        """
        self.reserve(1)
        RECORD.pack_into(
            self.buffer,
            self.at,
            *(at_us, uid - (uid >> 63 << 64), 0, latency_us, 0, NO_NAME, self.key_code(key)),
            *(NO_NAME, kind | SBD, reason),
        )
        self.at += RECORD_BYTES

    def session_code(self, name: str) -> int:
        """Return the number of a session's name, valid until the segment is closed."""
        code = self._sessions.get(name)
        return (
            self._number("sessions", self._sessions, name, MAX_SESSIONS) if code is None else code
        )

    def remote_code(self, name: str) -> int:
        """Return the number of a partner relay, valid until the segment is closed."""
        code = self._remotes.get(name)
        return self._number("remotes", self._remotes, name, MAX_REMOTES) if code is None else code

    def key_code(self, key: bytes) -> int:
        """Return the number of an SBD client's key, valid until the segment is closed."""
        code = self._keys.get(key)
        if code is None:
            code = len(self._keys) + len(FIRST_NAMES)
            if code >= MAX_KEYS:
                return 1
            self._keys[key] = code
            self._new.setdefault("keys", []).append(path_of_key(key))
        return code

    def _number(self, table: str, codes: dict[str, int], name: str, most: int) -> int:
        code = len(codes) + len(FIRST_NAMES) - 1  # codes include ""
        if code >= most or len(name) > MAX_NAME_BYTES:
            return 1
        codes[name] = code
        self._new.setdefault(table, []).append(name)
        return code

    # --- output -------------------------------------------------------------------------------

    def flush(self) -> None:
        """Hand over the packed rows, and close the segment if it is due."""
        now_us = self.now_us()
        if self.at or self._gap is not None:
            self._hand_over(now_us, full=False)
        elif not 0 <= now_us - self._told_us < MARK_US and self.all_written:
            self._submit(None, 0, now_us)
        age_us = now_us - self._segment_us
        due = self._segment_bytes and not 0 <= age_us < self._rhythm.segment_s * 1e6
        if due and not self.at:  # rows that wait use names of this segment
            self._submit(None, 0, now_us, close=True)

    @property
    def all_written(self) -> bool:
        """Whether the writer has written all it was given."""
        return len(self._writer.free) == self._buffers - 1

    def _hand_over(self, now_us: int, full: bool) -> None:
        """Exchange the buffer for a free one; without one, discard the rows if it is full."""
        free = self._free()
        if free is None:
            if full:
                self._lose(now_us)
            return
        filled, used = self.buffer, self.at
        self.buffer, self.at = free, 0
        if used and not self._segment_bytes:
            self._segment_us = now_us
        self._segment_bytes += used
        close = self._segment_bytes >= self._rhythm.segment_bytes
        self._submit(filled, used, now_us, close)

    def _submit(
        self, buffer: bytearray | None, used: int, now_us: int, close: bool = False
    ) -> None:
        gap = None
        if self._gap is not None:
            from_us, to_us, lost = self._gap
            gap = Gap(self._writer.relay, self._writer.worker, from_us, to_us, lost, Why.PRESSURE)
            self._gap = None
        names, self._new = self._new, {}
        self._told_us = now_us
        self._writer.submit(Job(buffer, used, now_us, names, close, gap))
        if close:
            self._segment_bytes = 0
            self._sessions = {"": NO_NAME}
            self._remotes = {"": NO_NAME}
            self._keys = {}
            self.on_close()

    def _free(self) -> bytearray | None:
        if self._writer.free:
            return self._writer.free.popleft()
        if self._buffers < MAX_BUFFERS:
            self._buffers += 1
            return bytearray(BUFFER_BYTES)
        return None

    def _lose(self, now_us: int) -> None:
        """Discard the rows of the buffer, because no other one is free."""
        for kind, count in enumerate(count_kinds(self.buffer, self.at)):
            self.lost[kind] += count
        began_us = int.from_bytes(self.buffer[:8], "little", signed=True)
        from_us, _, lost = self._gap or (began_us, 0, 0)
        self._gap = (min(from_us, began_us), now_us, lost + self.at // RECORD_BYTES)
        self.at = 0
