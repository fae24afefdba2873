"""Notes of a lane's messages whose turn is far off: 29 bytes each, in order.

The queues of relays that are unavailable may not fit into memory as objects, and must not keep the
messages behind them from being read. A note is enough to find a message again and to notice that it
expires.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

_NOTE: Final = struct.Struct("<QQdI?")


class Note(NamedTuple):
    """One message.

    Attributes:
        id: id in its stream.
        deadline: unix time at which it expires.
        size_bytes: size of the envelope.
        doubtful: whether an earlier attempt may have been accepted.
    """

    id: bytes
    deadline: float
    size_bytes: int
    doubtful: bool


class Notes:
    """Notes in the order of their ids.

    Attributes:
        nearest: lower bound of all deadlines, unix time.
    """

    __slots__ = ("_packed", "nearest")

    def __init__(self) -> None:
        self.nearest = float("inf")
        self._packed = bytearray()

    def __len__(self) -> int:
        return len(self._packed) // _NOTE.size

    def add(self, note: Note) -> None:
        """Append a note."""
        self._packed += _pack(note)
        self.nearest = min(self.nearest, note.deadline)

    def put_first(self, notes: Iterable[Note]) -> None:
        """Insert notes before all others."""
        first = list(notes)
        self._packed[:0] = b"".join(map(_pack, first))
        self.nearest = min([self.nearest, *(note.deadline for note in first)])

    def take(self, count: int) -> list[Note]:
        """Remove and return the first notes."""
        found = _unpack(self._packed[: count * _NOTE.size])
        del self._packed[: count * _NOTE.size]
        return found

    def expired(self, now: float) -> list[Note]:
        """Remove and return the notes whose deadline has passed."""
        if self.nearest > now:
            return []
        found, left = bytearray(), bytearray()
        self.nearest = float("inf")
        for at, note in enumerate(_NOTE.iter_unpack(self._packed)):
            packed = self._packed[at * _NOTE.size : (at + 1) * _NOTE.size]
            if note[2] <= now:
                found += packed
            else:
                left += packed
                self.nearest = min(self.nearest, note[2])
        self._packed = left
        return _unpack(found)

    def doubtful(self) -> list[bytes]:
        """Return the ids of messages that may have been accepted."""
        return [b"%d-%d" % note[:2] for note in _NOTE.iter_unpack(self._packed) if note[4]]


def _pack(note: Note) -> bytes:
    moment, _, serial = note.id.partition(b"-")
    return _NOTE.pack(int(moment), int(serial), note.deadline, note.size_bytes, note.doubtful)


def _unpack(packed: bytes | bytearray) -> list[Note]:
    return [
        Note(b"%d-%d" % (moment, serial), deadline, size_bytes, doubtful)
        for moment, serial, deadline, size_bytes, doubtful in _NOTE.iter_unpack(packed)
    ]
