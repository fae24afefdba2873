"""Rows of messages, packed many at once into the buffer of a journal.

Of a message that is delivered from memory two rows are packed in one step, when its batch is
committed: accepted, at the time its batch began to fill, and delivered, now, since it is written to
its socket in the same turn of the loop. What is the same for all messages between two sessions
(their twins, the number of the session's name, the seed of the hash) is kept by whoever packs.
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
"""Most rows that one message of a batch makes."""

COLUMNS_FROM: Final = 10 if sys.byteorder == "little" else 1 << 62
"""Messages of a batch from which on packing column by column is quicker than row by row."""

# As `RECORD`, with all that stays the same as one piece, and the uid as it comes from the hash.
ROW: Final = Struct("<qQqq16s")
ENDS: Final = Struct("<IIIH")
"""Twins and the numbers of names: a tail without its suffix."""
SUFFIX: Final = tuple(bytes((kind, 0)) for kind in Kind)
"""Kind, and the reason of what went well: the last bytes of a row."""

_LATENCY: Final = Struct("<q")
_LATENCY_AT: Final = 24
_REMOTE_AT: Final = RECORD_BYTES - 4
_KIND_AT: Final = RECORD_BYTES - 2
_DELIVERED: Final = SUFFIX[Kind.DELIVERED]
_KIND_DELIVERED: Final = _DELIVERED[:1]
_pack_row = ROW.pack_into

Tail = tuple[bytes, int]
"""How the row of a message that is taken ends, and the seed of its uid."""


class Taken:
    """The rows of a batch: those that say where messages came from, then those that say that they
    were delivered, in the same order.

    They can be changed as long as they are in the buffer that the journal fills.
    """

    def __init__(self, journal: Journal, count: int) -> None:
        self._journal = journal
        self._buffer = journal.buffer
        self._start = journal.at
        self._given = self._start + count * RECORD_BYTES
        self._end = self._given + count * RECORD_BYTES
        self._places: dict[int, int] | None = None  # of rows that say delivered, by uid

    def forget_remotes(self) -> None:
        """Who brought a message says the row of its arrival, not that of its delivery."""
        buffer, nothing = self._buffer, bytes((self._end - self._given) // RECORD_BYTES)
        buffer[self._given + _REMOTE_AT : self._end : RECORD_BYTES] = nothing
        buffer[self._given + _REMOTE_AT + 1 : self._end : RECORD_BYTES] = nothing

    def note_errors(self, numbers: Iterable[int]) -> None:
        """Adds a row for each of these messages: it is an error of a twin."""
        journal, buffer = self._journal, self._buffer
        for number in numbers:
            at = self._start + number * RECORD_BYTES
            row = buffer[at : at + _KIND_AT] + SUFFIX[Kind.ERROR]
            buffer[journal.at : journal.at + RECORD_BYTES] = row
            journal.at += RECORD_BYTES

    def queue(self, numbers: Iterable[int]) -> None:
        """Has these messages wait instead."""
        for number in numbers:
            _queue(self._buffer, self._given + number * RECORD_BYTES)

    def queue_uids(self, uids: Iterable[int]) -> None:
        """As `queue`, unless the rows were handed over already: then they count as delivered
        twice."""
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
    """Packs that messages were taken `latency_us` ago and are delivered now; room is reserved."""
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
    """Packs rows of messages that were taken, behind them those of their delivery."""
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
    """The same for many messages: a column of all rows at a time, which takes a third as long."""
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
    """Has a row that says delivered say that the message waits."""
    _LATENCY.pack_into(buffer, at + _LATENCY_AT, NO_LATENCY)
    buffer[at + _KIND_AT] = Kind.QUEUED
