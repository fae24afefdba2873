"""Packing of many rows at once into the buffer of a journal.

A message that is delivered from memory has two rows, which are packed together when its batch is
committed: accepted, at the time its batch began to fill, and delivered, at the current time,
because it is written to its socket in the same turn of the event loop. The caller keeps what is the
same for all messages between two sessions: their twins, the number of the session's name, and the
seed of the hash.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final

from relay.analytics.records import NO_LATENCY, RECORD_BYTES, Kind

if TYPE_CHECKING:
    from relay.analytics.journal import Journal

ROWS_OF_ONE: Final = 3
"""Maximum number of rows of one message of a batch."""

COLUMNS_FROM: Final = 10 if sys.byteorder == "little" else 1 << 62
"""Number of messages of a batch from which packing by columns is faster than by rows."""

# Same as `RECORD`, with all that stays the same as one piece, and the uid unsigned, as hashed.
ROW: Final = Struct("<qQqq16s")
ENDS: Final = Struct("<IIIH")
"""Twins and the numbers of names: a tail without its suffix."""
SUFFIX: Final = tuple(bytes((kind, 0)) for kind in Kind)
"""Last bytes of a row, by kind: the kind, and the reason of success (0)."""

_LATENCY: Final = Struct("<q")
_LATENCY_AT: Final = 24
_REMOTE_AT: Final = RECORD_BYTES - 4
_KIND_AT: Final = RECORD_BYTES - 2
_DELIVERED: Final = SUFFIX[Kind.DELIVERED]
_KIND_DELIVERED: Final = _DELIVERED[:1]
_pack_row = ROW.pack_into

Tail = tuple[bytes, int]
"""End of the row of an accepted message, and the seed of its uid."""


class Taken:
    """Rows of a batch: those of its arrivals, then those of its deliveries, in the same order.

    They can be changed as long as they are in the journal's current buffer.
    """

    def __init__(self, journal: Journal, count: int) -> None:
        self._journal = journal
        self._buffer = journal.buffer
        self._start = journal.at
        self._given = self._start + count * RECORD_BYTES
        self._end = self._given + count * RECORD_BYTES
        self._places: dict[int, int] | None = None  # of rows of kind delivered, by uid

    def forget_remotes(self) -> None:
        """Clear the partner relay in the rows of deliveries; only rows of arrivals name it."""
        buffer, nothing = self._buffer, bytes((self._end - self._given) // RECORD_BYTES)
        buffer[self._given + _REMOTE_AT : self._end : RECORD_BYTES] = nothing
        buffer[self._given + _REMOTE_AT + 1 : self._end : RECORD_BYTES] = nothing

    def note_errors(self, numbers: Iterable[int]) -> None:
        """Add a row for each of these messages that it is an error of a twin."""
        journal, buffer = self._journal, self._buffer
        for number in numbers:
            at = self._start + number * RECORD_BYTES
            row = buffer[at : at + _KIND_AT] + SUFFIX[Kind.ERROR]
            buffer[journal.at : journal.at + RECORD_BYTES] = row
            journal.at += RECORD_BYTES

    def queue(self, numbers: Iterable[int]) -> None:
        """Change the deliveries of these messages to `queued`."""
        for number in numbers:
            _queue(self._buffer, self._given + number * RECORD_BYTES)

    def queue_uids(self, uids: Iterable[int]) -> None:
        """Change the deliveries of these messages to `queued`, found by their uids.

        If the rows were handed over already, they stay, and the messages count as delivered twice.
        """
        buffer = self._buffer
        if buffer is not self._journal.buffer or self._end > self._journal.at:
            return
        places = self._places
        if places is None:
            places = self._places = {}
            for at in range(self._given, self._end, RECORD_BYTES):
                if buffer[at + _KIND_AT] == Kind.DELIVERED:
                    places[int.from_bytes(buffer[at + 8 : at + 16], "little")] = at
        for uid in uids:
            found = places.pop(uid, None)
            if found is not None:
                _queue(buffer, found)


def pack(
    journal: Journal,
    now_us: int,
    latency_us: int,
    uids: list[int],
    sizes: list[int],
    tails: list[bytes],
) -> Taken:
    """Pack rows that messages were accepted `latency_us` ago and are delivered now.

    The caller has reserved room.
    """
    taken = Taken(journal, len(uids))
    many = _pack_columns if len(uids) >= COLUMNS_FROM else _pack_rows
    many(journal.buffer, journal.at, now_us, latency_us, uids, sizes, tails)
    journal.at += 2 * len(uids) * RECORD_BYTES
    return taken


def _pack_rows(
    buffer: bytearray,
    at: int,
    now_us: int,
    latency_us: int,
    uids: list[int],
    sizes: list[int],
    tails: list[bytes],
) -> None:
    """Pack the rows of the arrival of messages, then those of their delivery."""
    taken_us, given = now_us - latency_us, at + len(uids) * RECORD_BYTES
    for uid, size, tail in zip(uids, sizes, tails, strict=True):
        _pack_row(buffer, at, taken_us, uid, size, NO_LATENCY, tail)
        _pack_row(buffer, given, now_us, uid, size, latency_us, tail[:-2] + _DELIVERED)
        at += RECORD_BYTES
        given += RECORD_BYTES


def _pack_columns(
    buffer: bytearray,
    at: int,
    now_us: int,
    latency_us: int,
    uids: list[int],
    sizes: list[int],
    tails: list[bytes],
) -> None:
    """Pack the same rows column by column, which takes a third of the time for many messages."""
    count, taken_us = len(uids), now_us - latency_us
    given = at + count * RECORD_BYTES
    end = given + count * RECORD_BYTES
    buffer[at:given] = ROW.pack(taken_us, 0, 0, NO_LATENCY, bytes(16)) * count
    rows = memoryview(buffer)[at:given].cast("Q")
    ends = memoryview(b"".join(tails)).cast("Q")
    rows[1::6] = array("Q", uids)
    rows[2::6] = array("Q", sizes)
    rows[4::6] = ends[0::2]
    rows[5::6] = ends[1::2]
    buffer[given:end] = buffer[at:given]
    rows = memoryview(buffer)[given:end].cast("Q")
    rows[0::6] = array("Q", (now_us,)) * count
    rows[3::6] = array("Q", (latency_us,)) * count
    buffer[given + _KIND_AT : end : RECORD_BYTES] = _KIND_DELIVERED * count


def _queue(buffer: bytearray, at: int) -> None:
    """Change a row of kind delivered to queued."""
    _LATENCY.pack_into(buffer, at + _LATENCY_AT, NO_LATENCY)
    buffer[at + _KIND_AT] = Kind.QUEUED
