"""A ring of shared memory: one process puts records in, another takes them out in order.

    numbers   u64 each, a cache line apart: bytes put in so far; taken out so far; then `NUMBERS`
              figures that the taker reports to the sender
    data      `DATA_BYTES`; a record is a head and its bytes, and never wraps around the end

    head      length, what, messages, more u32, now_us, latency_us i64; a length of 2^32 - 1 means
              that the next record is at the start

There are no locks. Records are published later (`publish`), in another turn of the sender's event
loop than the one in which they were put in: the system calls between the turns order the memory
accesses, also on processors that would reorder them.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

DATA_BYTES: Final = 4 << 20
"""Size of the data: several times what a busy worker puts in between two reads of the taker, and
small enough to stay in a processor's cache."""
MOST_BYTES: Final = DATA_BYTES // 4
"""Maximum size of one record, in bytes."""
NUMBERS: Final = 32
"""Maximum number of figures that the taker reports."""

_START: Final = mmap.PAGESIZE
_LENGTH: Final = _START + DATA_BYTES
_HEAD: Final = Struct("<IIIIqq")
_HEAD_BYTES: Final = _HEAD.size
_pack_head = _HEAD.pack_into
_SKIP: Final = b"\xff" * 4
_PUT, _TAKEN, _TOLD = 0, 8, 16
"""Indices of the numbers; each is in a cache line of its own."""


def create() -> int:
    """Create the memory and return its file descriptor, for the sender and for a child to inherit.

    Raises:
        OSError: there is not enough memory.
        AttributeError: the system has no memfd.
    """
    file = os.memfd_create("rmb-events", os.MFD_CLOEXEC)
    try:
        os.ftruncate(file, _LENGTH)
    except OSError:
        os.close(file)
        raise
    return file


class Record(NamedTuple):
    """A record of the ring; its numbers are those of `relay.analytics.handover`."""

    what: int
    messages: int
    more: int
    now_us: int
    latency_us: int
    data: bytes


class Ring:
    """One end of a ring; an object is used either for putting in or for taking out."""

    def __init__(self, file: int) -> None:
        """
        Args:
            file: file descriptor from `create`; may be closed afterwards.
        """
        self._memory = mmap.mmap(file, _LENGTH)
        self._numbers = memoryview(self._memory)[:_START].cast("Q")
        self._end = self._numbers[_PUT]  # of the records put in, published or not
        self._older = self._end  # its value at the last `publish`
        self._bound = 0  # its maximum, as far as known

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
        """Put a record in, to be published later.

        Args:
            what, messages, more, now_us, latency_us: see `Record`.
            data: content of at most `MOST_BYTES`.
            spare_bytes: bytes that must remain free behind the record.

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
            # Read only here, because the taker writes it and a read may wait for its cache line.
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
        """Publish the records put in before the last call; return whether more remain."""
        self._numbers[_PUT] = self._older
        more = self._older != self._end
        self._older = self._end
        return more

    @property
    def waiting_bytes(self) -> int:
        """Bytes in the ring, published or not."""
        return self._end - self._numbers[_TAKEN]

    def take(self) -> Iterator[Record]:
        """Yield the published records; each counts as taken when it is yielded."""
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
        """Report up to `NUMBERS` figures to the sender."""
        for place, figure in enumerate(figures, _TOLD):
            self._numbers[place] = figure

    def told(self, count: int) -> list[int]:
        """Return the figures that the taker reported."""
        return self._numbers[_TOLD : _TOLD + count].tolist()

    def close(self) -> None:
        """Release the memory."""
        self._numbers.release()
        self._memory.close()
