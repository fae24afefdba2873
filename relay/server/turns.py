"""How many messages a worker reads in one turn of its loop, of all connections together.

One read of a connection brings hundreds of messages. Fifty connections that send as fast as they
can would keep a turn going for a tenth of a second or more, in which nothing else gets on: answers
of Redis, twins that were looked up, the connections that send one message at a time. So the turn
ends at a bound, and the next one goes on with those that have waited longest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

TURN_MESSAGES: Final = 512
"""Some milliseconds of a worker's time."""
BULK_BYTES: Final = 4096
"""A read of that size is kept for a later turn where this one has read enough."""
COUNTED_FROM: Final = 16
"""Messages of one read from which on they are counted: few at a time never make a turn long."""


class Turns:
    """The turns of one worker's loop.

    Attributes:
        left: messages that may still be read in this turn; zero or less: none.
    """

    __slots__ = ("_scheduled", "_waiting", "left")

    def __init__(self) -> None:
        self.left = TURN_MESSAGES
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def spend(self, messages: int, loop: asyncio.AbstractEventLoop) -> None:
        """Count what was read."""
        self.left -= messages
        self._schedule(loop)

    def wait(self, read_on: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        """Call back in a later turn, after all who waited before."""
        self._waiting.append(read_on)
        self._schedule(loop)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._begin, loop)

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next turn: those who come again wait for the one after it."""
        self._scheduled = False
        self.left = TURN_MESSAGES
        waiting = self._waiting
        for _ in range(len(waiting)):
            if self.left <= 0:
                break
            waiting.popleft()()
        if waiting or self.left < TURN_MESSAGES:
            self._schedule(loop)
