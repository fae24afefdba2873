"""Messages whose sender's twin is being looked up; they wait, in order for each sender.

A peer that reconnects finds thousands of messages at its relay, and has no twin in its cache. None
of the messages is lost: above the limits `full` requests that no more be read. Only while the
source of twins is unavailable does a full waiting room drop messages it cannot verify, so that
messages of known twins are still processed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from peer.twins import Twin, TwinCache, TwinsAwayError
from proto.rmb import stamp
from proto.rmb import types_pb2 as pb

log = logging.getLogger(__name__)

MAX_MESSAGES: Final = 4096
"""Number of waiting messages from which on no more are read."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""Size of waiting messages from which on no more are read, in bytes."""

PAUSE_S: Final = 1.0
"""Seconds before a source that was unavailable is asked again."""

SLICE_S: Final = 0.005
"""Seconds for which waiting messages are processed before the event loop runs other work."""


class Senders:
    """All senders that are being looked up.

    Args:
        twins: cache that looks up the senders.
        on_found: called with each message and its sender's twin, None if the twin does not exist.
        on_dropped: called for each message that cannot be verified.
        on_room: called when `full` has become false.
    """

    def __init__(
        self,
        twins: TwinCache,
        on_found: Callable[[pb.Envelope, Twin | None], None],
        on_dropped: Callable[[pb.Envelope], None],
        on_room: Callable[[], None],
    ) -> None:
        self._twins = twins
        self._on_found = on_found
        self._on_dropped = on_dropped
        self._on_room = on_room
        self._waiting: dict[int, deque[tuple[pb.Envelope, int]]] = {}  # by twin, with their sizes
        self._count = 0
        self._bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return self._count

    def __contains__(self, twin_id: int) -> bool:
        """Return whether messages of a twin wait: new ones then have to wait behind them."""
        return twin_id in self._waiting

    @property
    def full(self) -> bool:
        """Whether no more messages should be added."""
        return self._count >= MAX_MESSAGES or self._bytes >= MAX_BYTES

    def add(self, envelope: pb.Envelope, size_bytes: int) -> None:
        """Add a message that waits for the twin of its source."""
        self._count += 1
        self._bytes += size_bytes
        sender = envelope.source.twin
        waiting = self._waiting.get(sender)
        if waiting is not None:
            waiting.append((envelope, size_bytes))
            return
        self._waiting[sender] = deque([(envelope, size_bytes)])
        task = asyncio.create_task(self._look_up(sender))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def look_ups(self) -> frozenset[asyncio.Task[None]]:
        """The tasks of the look-ups, one for each sender whose messages wait."""
        return frozenset(self._tasks)

    async def aclose(self) -> None:
        """Cancel all look-ups."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look_up(self, sender: int) -> None:
        waiting = self._waiting[sender]
        try:
            while waiting:
                try:
                    twin = await self._twins.get(sender)
                except TwinsAwayError as error:
                    self._drop(waiting, error)
                    if waiting:
                        await asyncio.sleep(PAUSE_S)
                else:
                    await self._give(waiting, twin)
        finally:
            del self._waiting[sender]
            for _, size_bytes in waiting:
                self._leave(size_bytes)

    def _drop(self, waiting: deque[tuple[pb.Envelope, int]], error: TwinsAwayError) -> None:
        """Drop expired messages, or all of them when the waiting room is full."""
        sender = waiting[0][0].source.twin
        log.warning("%d messages of twin %d wait: %s", len(waiting), sender, error)
        everything, now = self.full, int(time.time())
        for _ in range(len(waiting)):
            envelope, size_bytes = waiting.popleft()
            if everything or stamp.ttl(now, envelope.timestamp, envelope.expiration) <= 0:
                self._leave(size_bytes)
                self._on_dropped(envelope)
            else:
                waiting.append((envelope, size_bytes))

    async def _give(self, waiting: deque[tuple[pb.Envelope, int]], twin: Twin | None) -> None:
        until = time.monotonic() + SLICE_S
        while waiting:
            envelope, size_bytes = waiting.popleft()
            self._leave(size_bytes)
            try:
                self._on_found(envelope, twin)
            except Exception:
                # As in the inbox: a failure must not block the messages behind it.
                log.exception("a message of %d bytes was dropped", size_bytes)
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE_S

    def _leave(self, size_bytes: int) -> None:
        was_full = self.full
        self._count -= 1
        self._bytes -= size_bytes
        if was_full and not self.full:
            self._on_room()
