"""Rate limit of one address, by virtual scheduling, as in the reference (sheet section 5.1).

Each byte advances the time at which everything sent would have arrived at the allowed rate. A
message passes if that time is ahead of the clock by no more than the burst. Refused messages stay
charged. Times are nanoseconds of a monotonic clock.
"""

from __future__ import annotations

from proto.sbd.bounds import (
    DEFAULT_BURST_BYTES,
    DEFAULT_BYTE_NANOS,
    MAX_INT,
    UNLIMITED_BYTE_NANOS,
)

KBIT_NANOS = 8_000_000
"""Nanoseconds that a byte takes at one kilobit per second."""


def byte_nanos_of(kbit_per_s: int) -> int:
    """Return the nanoseconds that each byte takes; 0 (no limit) above 8,000,000 kbit/s.

    Raises:
        ValueError: the rate is not above 0.
    """
    if kbit_per_s <= 0:
        raise ValueError("the rate of an address has to be above 0 kbit/s")
    return KBIT_NANOS // kbit_per_s


def announced_byte_nanos(byte_nanos: int, connections: int) -> int:
    """Return the `lbrt` of each connection of an address, which share the rate of the address.

    Args:
        byte_nanos: nanoseconds that each byte of the address takes; 0: no limit.
        connections: number of open connections, authenticated or not.
    """
    if not byte_nanos:
        return UNLIMITED_BYTE_NANOS
    return min(byte_nanos * connections, MAX_INT)


class ByteRate:
    """The bytes that one address has sent, measured against its rate.

    Attributes:
        byte_nanos: nanoseconds that each byte takes; 0: no limit.
        due_ns: time at which all of them would have arrived at the allowed rate.
        charged_bytes: number of bytes counted so far.
    """

    __slots__ = ("_burst_bytes", "_burst_ns", "byte_nanos", "charged_bytes", "due_ns")

    def __init__(
        self, byte_nanos: int = DEFAULT_BYTE_NANOS, burst_bytes: int = DEFAULT_BURST_BYTES
    ) -> None:
        """Create the rate of an address that has sent nothing.

        Args:
            byte_nanos: nanoseconds that each byte takes; 0: no limit.
            burst_bytes: bytes that may arrive at once after a silence.
        """
        self.byte_nanos = byte_nanos
        self._burst_bytes = burst_bytes
        self._burst_ns = burst_bytes * byte_nanos
        self.due_ns = self.charged_bytes = 0

    def change(self, byte_nanos: int, now_ns: int) -> None:
        """Change the time that each byte takes; bytes that were sent too early stay owed."""
        owed_bytes = max(0, self.due_ns - now_ns) // self.byte_nanos if self.byte_nanos else 0
        self.byte_nanos = byte_nanos
        self._burst_ns = self._burst_bytes * byte_nanos
        self.due_ns = now_ns + owed_bytes * byte_nanos

    def charge(self, size_bytes: int, now_ns: int) -> bool:
        """Count bytes that were sent, and return whether they may pass."""
        self.charged_bytes += size_bytes
        self.due_ns = max(self.due_ns, now_ns) + size_bytes * self.byte_nanos
        return self.due_ns - now_ns <= self._burst_ns

    def fits(self, size_bytes: int, now_ns: int) -> bool:
        """Return whether a number of bytes would pass, without counting them."""
        ahead_ns = max(0, self.due_ns - now_ns) + size_bytes * self.byte_nanos
        return ahead_ns <= self._burst_ns

    def is_idle(self, now_ns: int) -> bool:
        """Return whether this rate can be forgotten, because all charged bytes are paid off."""
        return self.due_ns <= now_ns
