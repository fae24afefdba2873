"""Identification of a block, used by look-ups, the follower and sinks.

It is separate from the client, so that code that only handles the follower's reports needs no
connection.
"""

from __future__ import annotations

from typing import NamedTuple


class Head(NamedTuple):
    """Height and hash of a block."""

    height: int
    hash: bytes
