"""Mortal eras: the range of blocks in which a transaction is valid.

An era has two bytes, little-endian. The lowest four bits give the period (a power of two from 4 to
65536), the others the position in the period at which the era begins, in steps of a 4096th of the
period (at least 1). The encoding does not say which period is meant: it is the one that contains
the next block. The hash of its first block is signed, so that the signature is invalid in every
other period.
"""

from __future__ import annotations

from typing import Final

from proto.chain.errors import ScaleError

_SMALLEST_PERIOD: Final = 4
_STEP_SHIFT: Final = 12


def birth(era: bytes, number: int) -> int:
    """Return the height of the first block of the era that contains `number`.

    Args:
        era: the two bytes of a mortal era.
        number: height of the block that the transaction would be in.

    Raises:
        ScaleError: the period or phase does not exist.
    """
    encoded = int.from_bytes(era, "little")
    period = 2 << (encoded & 0b1111)
    phase = (encoded >> 4) * max(1, period >> _STEP_SHIFT)
    if period < _SMALLEST_PERIOD or phase >= period:
        raise ScaleError("era", f"phase {phase} of period {period} does not exist")
    return (max(number, phase) - phase) // period * period + phase
