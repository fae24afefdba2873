"""The buffer that events of one process are packed into, and the numbers of its names.

Belongs to one event loop. `reserve` makes room, then rows are packed at `at` (the busiest recorder
does that itself, in a row); a timer hands over what is there, so what a crash takes along is no
older than a moment. A segment is closed here, not where it is written, since the numbers of names
begin anew with the next one.

Buffers come back when they are written. When none is free, what would need one is lost: counted by
kind, and the time is written down as a gap when there is a buffer again.
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
"""While nothing happens it is told this often that nothing did: the gap of a process that is killed
then is no longer. Well below `backlog.SILENCE_S`."""

_U64: Final = (1 << 64) - 1


FIGURES: Final = len(KINDS) + 3
"""Of `Journal.counts`."""


def as_figures(counts: list[int]) -> dict[str, float]:
    """What `Journal.counts` returns, for the metrics."""
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
    """How often files are written and closed."""

    flush_s: float = 1.0
    segment_s: float = 10.0
    segment_bytes: int = 64 << 20


class Journal:
    """Packs events.

    Attributes:
        buffer: that is filled.
        at: where the next row goes.
        lost: events there was no buffer for, by kind.
        on_close: called when the numbers of names become invalid.
    """

    def __init__(
        self, writer: SegmentWriter, clock: Callable[[], float], rhythm: Rhythm | None = None
    ) -> None:
        """
        Args:
            writer: takes what is full; started and closed with this.
            clock: unix seconds.
            rhythm: of writing.
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
        self._segment_bytes = 0  # of records, handed over
        self._segment_us = 0  # when the first of them was
        self._told_us = 0  # up to when the writer knows everything
        self._gap: tuple[int, int, int] | None = None  # from, to, how many
        self._timer: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to hand over what is there, from time to time."""
        self.begin()
        self._tick()

    async def close(self) -> None:
        """Hands over the rest; returns when it is written."""
        if self._timer is not None:
            self._timer.cancel()
        await asyncio.to_thread(self.finish)

    def begin(self) -> None:
        """As `start`, for who has no loop: what is there is handed over by `flush`."""
        self._writer.start()

    def finish(self) -> None:
        """As `close`, and blocks. Nothing is packed any more."""
        self._submit(self.buffer, self.at, self.now_us(), close=True)
        self._writer.close()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._rhythm.flush_s, self._tick)
        self.flush()

    def counts(self) -> list[int]:
        """Events written, by kind; lost for want of a buffer and to the disk; times it refused."""
        writer = self._writer
        return [*writer.written, sum(self.lost), sum(writer.lost), writer.failures]

    def figures(self) -> dict[str, float]:
        """Figures for the metrics."""
        return as_figures(self.counts())

    # --- rows ---------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Unix time, as rows have it."""
        return int(self._clock() * 1e6)

    def reserve(self, records: int) -> None:
        """Makes room for so many rows, at most as many as a buffer has."""
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
        """Packs one row.

        Args:
            kind: what happened.
            at_us: when.
            uid: from 0 to 2^64 - 1, or signed.
            source, destination: twins.
            session: name of the source's session.
            size_bytes: of the message.
            latency_us: as the schema has it.
            reason: its number.
            remote: the other relay.
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
        """Packs one row of an SBD connection; arguments as those of `put`, `key` is the client's.

        Rows of packets are packed by `relay.analytics.sbd_events`.
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
        """The number of a session's name, until the segment is closed."""
        code = self._sessions.get(name)
        return (
            self._number("sessions", self._sessions, name, MAX_SESSIONS) if code is None else code
        )

    def remote_code(self, name: str) -> int:
        """The number of another relay, until the segment is closed."""
        code = self._remotes.get(name)
        return self._number("remotes", self._remotes, name, MAX_REMOTES) if code is None else code

    def key_code(self, key: bytes) -> int:
        """The number of an SBD client's key, until the segment is closed."""
        code = self._keys.get(key)
        if code is None:
            code = len(self._keys) + len(FIRST_NAMES)
            if code >= MAX_KEYS:
                return 1
            self._keys[key] = code
            self._new.setdefault("keys", []).append(path_of_key(key))
        return code

    def _number(self, table: str, codes: dict[str, int], name: str, most: int) -> int:
        code = len(codes) + len(FIRST_NAMES) - 1  # "" is among them
        if code >= most or len(name) > MAX_NAME_BYTES:
            return 1
        codes[name] = code
        self._new.setdefault(table, []).append(name)
        return code

    # --- handing over -------------------------------------------------------------------------

    def flush(self) -> None:
        """Hands over what is there, and closes the segment if that is due."""
        now_us = self.now_us()
        if self.at or self._gap is not None:
            self._hand_over(now_us, full=False)
        elif not 0 <= now_us - self._told_us < MARK_US and self.all_written:
            self._submit(None, 0, now_us)
        age_us = now_us - self._segment_us
        due = self._segment_bytes and not 0 <= age_us < self._rhythm.segment_s * 1e6
        if due and not self.at:  # rows that wait for a buffer have names of this segment
            self._submit(None, 0, now_us, close=True)

    @property
    def all_written(self) -> bool:
        """Whether the writer has written all it was given."""
        return len(self._writer.free) == self._buffers - 1

    def _hand_over(self, now_us: int, full: bool) -> None:
        """Exchanges the buffer for a free one."""
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
        """There is no buffer: what this one has is given up."""
        for kind, count in enumerate(count_kinds(self.buffer, self.at)):
            self.lost[kind] += count
        began_us = int.from_bytes(self.buffer[:8], "little", signed=True)
        from_us, _, lost = self._gap or (began_us, 0, 0)
        self._gap = (min(from_us, began_us), now_us, lost + self.at // RECORD_BYTES)
        self.at = 0
