"""A block by its place: what look-ups, the follower and whoever keeps a tip name it by.

Apart from the client, so that who only reads how the chain is followed needs no connection.
"""

from __future__ import annotations

from typing import NamedTuple


class Head(NamedTuple):
    """A block: its height and its hash."""

    height: int
    hash: bytes
