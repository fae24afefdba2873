"""A ring of memory between two processes: one puts records in, the other takes them out in order.

    numbers   u64 each, a cache line apart: bytes put in so far; taken out so far; then `NUMBERS`
              figures that the one who takes tells the other
    data      `DATA_BYTES`; a record is a head and its bytes, and never goes around the end

    head      length, what, messages, more u32, now_us, latency_us i64; a length of 2^32 - 1 says
              that the next record is at the start

There are no locks. What was put in is published later (`publish`), by a turn of the sender's event
loop that is not the one it was put in: the system calls between them order the memory, also for
processors that would not.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

DATA_BYTES: Final = 4 << 20
"""Several times what a busy worker puts in between two looks of the other side, and little enough
to stay in a processor's cache."""
MOST_BYTES: Final = DATA_BYTES // 4
"""Of one record."""
NUMBERS: Final = 32
"""Figures the taker may tell."""

_START: Final = mmap.PAGESIZE
_LENGTH: Final = _START + DATA_BYTES
_HEAD: Final = Struct("<IIIIqq")
_HEAD_BYTES: Final = _HEAD.size
_pack_head = _HEAD.pack_into
_SKIP: Final = b"\xff" * 4
_PUT, _TAKEN, _TOLD = 0, 8, 16
"""Places of the numbers."""


def create() -> int:
    """Makes the memory, and returns its file: for the sender, and for a child to inherit.

    Raises:
        OSError: there is no memory.
        AttributeError: this system has no such files.
    """
    file = os.memfd_create("rmb-events", os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, _LENGTH)
    except OSError:
        os.close(file)
        raise
    return file


class Record(NamedTuple):
    """What was put in; the numbers are those of `relay.analytics.handover`."""

    what: int
    messages: int
    more: int
    now_us: int
    latency_us: int
    data: bytes


class Ring:
    """One end of a ring; an object is used for putting in or for taking out."""

    def __init__(self, file: int) -> None:
        """
        Args:
            file: as `create` made it; may be closed when this returns.
        """
        self._memory = mmap.mmap(file, _LENGTH)
        self._numbers = memoryview(self._memory)[:_START].cast("Q")
        self._end = self._numbers[_PUT]  # of what was put in, published or not
        self._older = self._end  # where it was at the last `publish`
        self._bound = 0  # up to where it may go

    def put(
        self,
        what: int,
        data: bytes,
        messages: int,
        more: int = 0,
        now_us: int = 0,
        latency_us: int = 0,
        spare_bytes: int = 0,
    ) -> bool:
        """Puts a record in, to be published later.

        Args:
            what, messages, more, now_us, latency_us: see `Record`.
            data: at most `MOST_BYTES`.
            spare_bytes: that are to be free behind it.

        Returns:
            False if there is no room.
        """
        length, end = len(data), self._end
        need = _HEAD_BYTES + length + 7 & ~7
        at = end % DATA_BYTES
        if length > MOST_BYTES:
            return False
        skip = 0 if at + need <= DATA_BYTES else DATA_BYTES - at
        if end + skip + need + spare_bytes > self._bound:
            # Looked up only here: the other side writes it.
            self._bound = self._numbers[_TAKEN] + DATA_BYTES
            if end + skip + need + spare_bytes > self._bound:
                return False
        memory = self._memory
        at += _START
        if skip:
            memory[at : at + len(_SKIP)] = _SKIP
            at = _START
        start = at + _HEAD_BYTES
        _pack_head(memory, at, length, what, messages, more, now_us, latency_us)
        memory[start : start + length] = data
        self._end = end + skip + need
        return True

    def publish(self) -> bool:
        """Shows the other side what was put in before the last call; whether there is more."""
        self._numbers[_PUT] = self._older
        more = self._older != self._end
        self._older = self._end
        return more

    @property
    def waiting_bytes(self) -> int:
        """What is in it, published or not."""
        return self._end - self._numbers[_TAKEN]

    def take(self) -> Iterator[Record]:
        """Takes out what is published; each record counts as taken when it is handed out."""
        numbers, memory = self._numbers, self._memory
        end, taken = numbers[_PUT], numbers[_TAKEN]
        while taken != end:
            at = taken % DATA_BYTES
            head = _START + at
            if memory[head : head + len(_SKIP)] == _SKIP:
                taken += DATA_BYTES - at
                continue
            length, what, messages, more, now_us, latency_us = _HEAD.unpack_from(memory, head)
            head += _HEAD_BYTES
            data = memory[head : head + length]
            taken += _HEAD_BYTES + length + 7 & ~7
            numbers[_TAKEN] = taken
            yield Record(what, messages, more, now_us, latency_us, data)

    def tell(self, figures: list[int]) -> None:
        """Tells the other side up to `NUMBERS` figures."""
        for place, figure in enumerate(figures, _TOLD):
            self._numbers[place] = figure

    def told(self, count: int) -> list[int]:
        """What the other side told."""
        return self._numbers[_TOLD : _TOLD + count].tolist()

    def close(self) -> None:
        """Gives the memory back."""
        self._numbers.release()
        self._memory.close()
