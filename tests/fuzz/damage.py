"""Random damage to valid bytes."""

from __future__ import annotations

import random


def damaged(rng: random.Random, good: bytes, *, times: int, longest_cut_bytes: int) -> bytes:
    """Return the bytes with some bits flipped, bytes inserted or removed, or the end cut off."""
    data = bytearray(good)
    for _ in range(times):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at:at] = rng.randbytes(rng.randint(1, 4))
            case 2:
                del data[at : at + rng.randint(1, longest_cut_bytes)]
            case _:
                del data[at:]
    return bytes(data)
