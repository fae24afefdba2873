"""How much one address may send: virtual scheduling, as the reference does (sheet section 5.1).

Each byte moves the time by which all that was sent would have come at the allowed rate. A message
passes while that time is ahead of the clock by no more than the burst. What is refused stays
charged. Times are nanoseconds of a clock that never goes back.
"""

from __future__ import annotations

from proto.sbd.bounds import (
    DEFAULT_BURST_BYTES,
    DEFAULT_BYTE_NANOS,
    MAX_INT,
    UNLIMITED_BYTE_NANOS,
)

KBIT_NANOS = 8_000_000
"""Nanoseconds that a byte takes at one kilobit a second."""


def byte_nanos_of(kbit_per_s: int) -> int:
    """Return the nanoseconds each byte takes; 0, which is no limit, above 8,000,000 kbit/s.

    Raises:
        ValueError: the rate is not above 0.
    """
    if kbit_per_s <= 0:
        raise ValueError("the rate of an address has to be above 0 kbit/s")
    return KBIT_NANOS // kbit_per_s


def announced_byte_nanos(byte_nanos: int, connections: int) -> int:
    """Return the `lbrt` of each connection of an address: they share what the address may send.

    Args:
        byte_nanos: of the address; 0 for no limit.
        connections: that are open, authenticated or not.
    """
    if not byte_nanos:
        return UNLIMITED_BYTE_NANOS
    return min(byte_nanos * connections, MAX_INT)


class ByteRate:
    """What one address has sent, against what it may.

    Attributes:
        byte_nanos: nanoseconds each byte takes; 0 for no limit.
        due_ns: the time by which all of it would have come at the allowed rate.
        charged_bytes: all that was counted.
    """

    __slots__ = ("_burst_bytes", "_burst_ns", "byte_nanos", "charged_bytes", "due_ns")

    def __init__(
        self, byte_nanos: int = DEFAULT_BYTE_NANOS, burst_bytes: int = DEFAULT_BURST_BYTES
    ) -> None:
        """
        Args:
            byte_nanos: nanoseconds each byte takes; 0 for no limit.
            burst_bytes: what may come at once after a silence.
        """
        self.byte_nanos = byte_nanos
        self._burst_bytes = burst_bytes
        self._burst_ns = burst_bytes * byte_nanos
        self.due_ns = self.charged_bytes = 0

    def change(self, byte_nanos: int, now_ns: int) -> None:
        """Let each byte take another time; bytes that were sent too early stay owed as bytes."""
        owed_bytes = max(0, self.due_ns - now_ns) // self.byte_nanos if self.byte_nanos else 0
        self.byte_nanos = byte_nanos
        self._burst_ns = self._burst_bytes * byte_nanos
        self.due_ns = now_ns + owed_bytes * byte_nanos

    def charge(self, size_bytes: int, now_ns: int) -> bool:
        """Count what was sent, and return whether it may pass."""
        self.charged_bytes += size_bytes
        self.due_ns = max(self.due_ns, now_ns) + size_bytes * self.byte_nanos
        return self.due_ns - now_ns <= self._burst_ns

    def fits(self, size_bytes: int, now_ns: int) -> bool:
        """Whether so much would pass; counts nothing."""
        ahead_ns = max(0, self.due_ns - now_ns) + size_bytes * self.byte_nanos
        return ahead_ns <= self._burst_ns

    def is_idle(self, now_ns: int) -> bool:
        """Whether it may be forgotten: all it was charged has had its time."""
        return self.due_ns <= now_ns
