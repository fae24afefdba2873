"""Variable-length integers as in QUIC (RFC 9000 section 16; sheet section 1).

The two top bits of the first byte give the length: 1, 2, 4 or 8 bytes. The rest is the value,
big-endian.
"""

from __future__ import annotations

from typing import Final

MAX_VARINT: Final = (1 << 62) - 1

_SIZES: Final = tuple((size, (1 << (8 * size - 2)) - 1) for size in (1, 2, 4, 8))


def encode(value: int) -> bytes:
    """Return the shortest encoding of a value.

    Raises:
        ValueError: the value is negative or above 2^62 - 1.
    """
    if value < 0 or value > MAX_VARINT:
        raise ValueError(f"{value} is not between 0 and 2^62 - 1")
    if value < 1 << 6:
        return bytes((value,))
    if value < 1 << 14:
        return (value | 1 << 14).to_bytes(2, "big")
    if value < 1 << 30:
        return (value | 2 << 30).to_bytes(4, "big")
    return (value | 3 << 62).to_bytes(8, "big")


def decode(data: bytes, start: int = 0) -> tuple[int, int]:
    """Read a value, which need not be in its shortest form.

    Returns:
        The value, and the position after it.

    Raises:
        ValueError: the data ends before the value does.
    """
    if start >= len(data):
        raise ValueError("the data ends before a number")
    first = data[start]
    if first < 1 << 6:
        return first, start + 1
    size, mask = _SIZES[first >> 6]
    end = start + size
    if end > len(data):
        raise ValueError(f"the data ends {end - len(data)} bytes before a number of {size} does")
    return int.from_bytes(data[start:end], "big") & mask, end
