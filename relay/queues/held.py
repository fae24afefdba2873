"""How much of something is held, and for whom: two counts in one integer.

Messages are in the low bits, bytes above them. Adding and subtracting packed values works on both
at once, and a negative one is the exact opposite of what was added: one ``HINCRBY`` keeps both. The
outbox counts so what waits for each account, and a queue what each source twin has in it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MESSAGE_BITS: Final = 24
"""Messages one count can hold: 16 million, far above any bound that makes sense."""
MESSAGE_MASK: Final = (1 << MESSAGE_BITS) - 1
SOURCE_SHARE: Final = 4
"""One source twin may use this part of an account, and of a queue that is above half."""


class Held(NamedTuple):
    """How much of something there is."""

    messages: int
    size_bytes: int


def pack(messages: int, size_bytes: int) -> int:
    """Both counts in one integer, to be added (or, negated, subtracted) as a whole."""
    return (size_bytes << MESSAGE_BITS) + messages


def unpack(packed: int) -> Held:
    """Reads a stored count. A broken one (below zero) reads as nothing held."""
    if packed <= 0:
        return Held(0, 0)
    return Held(packed & MESSAGE_MASK, packed >> MESSAGE_BITS)


def is_share_full(packed: int, part: int, max_messages: int, max_bytes: int) -> bool:
    """Whether somebody holds so much that his part of the bounds is used up, of either.

    Args:
        packed: what he holds.
        part: he may use one in so many.
        max_messages, max_bytes: the bounds for all together.
    """
    return (packed & MESSAGE_MASK) * part >= max_messages or (
        packed >> MESSAGE_BITS
    ) * part >= max_bytes
