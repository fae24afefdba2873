"""Messages of the relays that wait to be looked at, by a gateway or a client.

    receive() --> waiting, a slice of them in each turn of the event loop --> open()

To check a signature takes some 60 us and holds the interpreter, so threads would not help: after
each slice the loop does everything else once (docs/decisions/010-verification.md). While the owner
is `busy` messages wait; above the bounds the relays are not read, and keep what comes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

MAX_MESSAGES: Final = 4096
"""That wait; above it the relays are not read."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes."""

SLICE_S: Final = 0.002
"""How long messages are worked on before others have their turn."""


class Inbox:
    """What came and was not looked at.

    Args:
        open: called with each message, in order.
        busy: whether none should be looked at now; `resume` is to be called when that has ended.
        on_flood: called with True when no more should be read, and with False when it can be.
    """

    def __init__(
        self,
        open: Callable[[bytes], None],
        busy: Callable[[], bool],
        on_flood: Callable[[bool], None],
    ) -> None:
        self._open = open
        self._busy = busy
        self._on_flood = on_flood
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._scheduled = False
        self._flooded = False
        self._loop = asyncio.get_running_loop()  # to ask for it each time is a call of the kernel

    def __len__(self) -> int:
        """Messages that nobody has looked at."""
        return len(self._waiting)

    def receive(self, data: bytes) -> None:
        """Takes one binary message of a relay."""
        self._waiting.append(data)
        self._bytes += len(data)
        if not self._scheduled:
            self._schedule()
        if not self._flooded and (len(self._waiting) > MAX_MESSAGES or self._bytes > MAX_BYTES):
            self._flooded = True
            self._on_flood(True)

    def resume(self) -> None:
        """Goes on with what waits."""
        if self._waiting and not self._scheduled:
            self._schedule()

    def clear(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()
        self._bytes = 0

    async def worked(self) -> None:
        """Returns when everything was looked at, or the owner is busy."""
        self.resume()
        while self._scheduled:
            await asyncio.sleep(0)

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._work)

    def _work(self) -> None:
        """One slice."""
        self._scheduled = False
        waiting = self._waiting
        until = time.monotonic() + SLICE_S
        while waiting and not self._busy():
            data = waiting.popleft()
            self._bytes -= len(data)
            try:
                self._open(data)
            except Exception:
                # One message that its owner can't take must not hold up those behind it.
                log.exception("a message of %d bytes was dropped", len(data))
            if time.monotonic() > until:
                self.resume()
                break
        if self._flooded and len(waiting) < MAX_MESSAGES // 2 and self._bytes < MAX_BYTES // 2:
            self._flooded = False
            self._on_flood(False)
