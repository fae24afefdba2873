"""Limits how many messages a worker reads in one turn of its loop, over all connections.

One read of a connection yields hundreds of messages. Fifty connections that send as fast as they
can would extend a turn to a tenth of a second or more, in which nothing else makes progress:
answers of Redis, look-ups of twins, connections that send one message at a time. So the turn ends
at a bound, and the next turn continues with the connections that have waited longest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_MESSAGES: Final = 512
"""Maximum number of messages per turn: some milliseconds of a worker's time."""
BULK_BYTES: Final = 4096
"""Size from which on a read is kept for a later turn if this turn has read enough."""
COUNTED_FROM: Final = 16
"""Number of messages in one read from which on they are counted: a few at a time never make a turn
long."""


class Turns:
    """Turns of one worker's loop.

    Attributes:
        left: Number of messages that may still be read in this turn; none if zero or less.
    """

    __slots__ = ("_scheduled", "_waiting", "left")

    def __init__(self) -> None:
        self.left = TURN_MESSAGES
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def spend(self, messages: int, loop: asyncio.AbstractEventLoop) -> None:
        """Count messages that were read."""
        self.left -= messages
        self._schedule(loop)

    def wait(self, read_on: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call `read_on` in a later turn, after all callbacks that were added before."""
        self._waiting.append(read_on)
        self._schedule(loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the next turn; connections that wait again are served in the turn after it."""
        self._scheduled = False
        self.left = TURN_MESSAGES
        waiting = self._waiting
        for _ in range(len(waiting)):
            if self.left <= 0:
                break
            waiting.popleft()()
        if waiting or self.left < TURN_MESSAGES:
            self._schedule(loop)
