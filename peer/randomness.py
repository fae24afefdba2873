"""Random bytes for uids and nonces, fetched many at a time.

To ask the kernel takes some microseconds, where the rest of a call takes a hundred and fifty.
"""

from __future__ import annotations

import os
from typing import Final

from proto.rmb.bounds import NONCE_BYTES, UID_BYTES

PIECES: Final = 64
"""So many of a size are fetched at once."""

_pieces: Final[dict[int, list[bytes]]] = {NONCE_BYTES: [], UID_BYTES: []}


def random_bytes(size: int) -> bytes:
    """Returns so many bytes of the system's generator, each of them to one caller only.

    Threads may share it: `list.pop` hands a piece out once. A process that was forked begins with
    none.
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
