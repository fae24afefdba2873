"""How much of something is held: the number of messages and of bytes in one integer.

Messages are in the low bits, bytes above them. Packed values can be added and subtracted like
numbers, and a negative one exactly undoes what was added, so one ``HINCRBY`` maintains both counts.
The outbox counts what waits for each account in this way, and a queue what it has of each source
twin.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MESSAGE_BITS: Final = 24
"""Bits for the number of messages: 16 million of them, far above any useful bound."""
MESSAGE_MASK: Final = (1 << MESSAGE_BITS) - 1
SOURCE_SHARE: Final = 4
"""One source twin may use one in so many of an account, and of a queue more than half full."""


class Held(NamedTuple):
    """Number and size of the messages held."""

    messages: int
    size_bytes: int


def pack(messages: int, size_bytes: int) -> int:
    """Return both counts in one integer, to be added (or, negated, subtracted) as a whole."""
    return (size_bytes << MESSAGE_BITS) + messages


def unpack(packed: int) -> Held:
    """Read a stored count. An invalid one (below zero) reads as nothing held."""
    if packed <= 0:
        return Held(0, 0)
    return Held(packed & MESSAGE_MASK, packed >> MESSAGE_BITS)


def is_share_full(packed: int, part: int, max_messages: int, max_bytes: int) -> bool:
    """Check whether a source has used up its part of either bound.

    Args:
        packed: What the source holds.
        part: Divisor of the bounds: the source may use one in so many.
        max_messages, max_bytes: Bounds for all sources together.
    """
    return (packed & MESSAGE_MASK) * part >= max_messages or (
        packed >> MESSAGE_BITS
    ) * part >= max_bytes
