"""Mortal eras: between which blocks a transaction is good.

Two bytes, little-endian: the lowest four bits say the period (a power of two from 4 to 65536), the
others where in the period the era begins, in steps of a 4096th of the period (at least 1). Nothing
says which period is meant: the one that the next block is in. The hash of its first block is
signed, so that the signature is wrong in every other.
"""

from __future__ import annotations

from typing import Final

from proto.chain.errors import ScaleError

_SMALLEST_PERIOD: Final = 4
_STEP_SHIFT: Final = 12


def birth(era: bytes, number: int) -> int:
    """Height of the first block of the era that `number` is in.

    Args:
        era: the two bytes of a mortal era.
        number: height of the block that the transaction would be in.

    Raises:
        ScaleError: a period or phase that does not exist.
    """
    encoded = int.from_bytes(era, "little")
    period = 2 << (encoded & 0b1111)
    phase = (encoded >> 4) * max(1, period >> _STEP_SHIFT)
    if period < _SMALLEST_PERIOD or phase >= period:
        raise ScaleError("era", f"phase {phase} of period {period} does not exist")
    return (max(number, phase) - phase) // period * period + phase
