"""Queue of messages received from the relays that a gateway or a client has not processed yet.

    receive() --> waiting, a slice of them in each turn of the event loop --> open()

Checking a signature takes about 60 us and holds the interpreter lock, so threads would not help:
after each slice the event loop runs everything else once (docs/decisions/010-verification.md).
While the owner is `busy`, messages wait; above the limits the relays are not read, and keep further
messages.
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
"""Number of waiting messages above which the relays are not read."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Size of waiting messages above which the relays are not read, in bytes."""

SLICE_S: Final = 0.002
"""Seconds for which messages are processed before the event loop runs other work."""


class Inbox:
    """Messages that were received and not processed yet.

    Args:
        open: called with each message, in order.
        busy: returns whether processing is suspended; the owner calls `resume` when that ends.
        on_flood: called with True when reading should stop, and with False when it can continue.
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
        self._loop = asyncio.get_running_loop()  # looking it up each time costs a system call

    def __len__(self) -> int:
        """Return the number of unprocessed messages."""
        return len(self._waiting)

    def receive(self, data: bytes) -> None:
        """Add one binary message of a relay."""
        self._waiting.append(data)
        self._bytes += len(data)
        if not self._scheduled:
            self._schedule()
        if not self._flooded and (len(self._waiting) > MAX_MESSAGES or self._bytes > MAX_BYTES):
            self._flooded = True
            self._on_flood(True)

    def resume(self) -> None:
        """Continue with the waiting messages."""
        if self._waiting and not self._scheduled:
            self._schedule()

    def clear(self) -> None:
        """Discard the waiting messages."""
        self._waiting.clear()
        self._bytes = 0

    async def worked(self) -> None:
        """Wait until all messages are processed, or the owner is busy."""
        self.resume()
        while self._scheduled:
            await asyncio.sleep(0)

    def _schedule(self) -> None:
        self._scheduled = True
        self._loop.call_soon(self._work)

    def _work(self) -> None:
        """Process one slice of the waiting messages."""
        self._scheduled = False
        waiting = self._waiting
        until = time.monotonic() + SLICE_S
        while waiting and not self._busy():
            data = waiting.popleft()
            self._bytes -= len(data)
            try:
                self._open(data)
            except Exception:
                # A message that its owner fails to process must not block those behind it.
                log.exception("a message of %d bytes was dropped", len(data))
            if time.monotonic() > until:
                self.resume()
                break
        if self._flooded and len(waiting) < MAX_MESSAGES // 2 and self._bytes < MAX_BYTES // 2:
            self._flooded = False
            self._on_flood(False)
