"""Random bytes for uids and nonces, fetched in blocks.

Each request to the kernel takes some microseconds; the rest of a call takes about 150.
"""

from __future__ import annotations

import os
from typing import Final

from proto.rmb.bounds import NONCE_BYTES, UID_BYTES

PIECES: Final = 64
"""Number of pieces of one size that are fetched at once."""

_pieces: Final[dict[int, list[bytes]]] = {NONCE_BYTES: [], UID_BYTES: []}


def random_bytes(size: int) -> bytes:
    """Return `size` bytes of the system's random generator; no two callers get the same bytes.

    Threads may share it: `list.pop` returns each piece once. A forked process starts with no
    pieces.
    """
    pieces = _pieces.get(size)
    if pieces is None:
        return os.urandom(size)
    while True:
        try:
            return pieces.pop()
        except IndexError:
            block = os.urandom(PIECES * size)
            pieces.extend([block[at : at + size] for at in range(0, len(block), size)])


def _forget() -> None:
    for pieces in _pieces.values():
        pieces.clear()


os.register_at_fork(after_in_child=_forget)
