"""Messages whose sender's twin is being looked up: they wait, each sender's in order.

A peer that comes back finds thousands of messages at its relay, and no twin in memory. None of them
is lost: above the bounds `full` says that no more should be read. Only while the source of twins is
away does a full waiting room drop what it can't verify, so that the messages of known twins go on.
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
"""That wait; with more nothing is read."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""The same in bytes."""

PAUSE_S: Final = 1.0
"""Before a source that was away is asked again."""

SLICE_S: Final = 0.005
"""What has waited is worked on for so long, then the loop does everything else once."""


class Senders:
    """All senders that are looked up.

    Args:
        twins: asked for them.
        on_found: called with each message and its sender's twin, None for one that is not there.
        on_dropped: called for each message that nobody can verify.
        on_room: called when `full` has turned false.
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
        """Whether messages of a twin wait: those that come now have to wait behind them."""
        return twin_id in self._waiting

    @property
    def full(self) -> bool:
        """Whether no more should come."""
        return self._count >= MAX_MESSAGES or self._bytes >= MAX_BYTES

    def add(self, envelope: pb.Envelope, size_bytes: int) -> None:
        """Have a message wait for the twin of its source."""
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
        """One task for each sender whose messages wait."""
        return frozenset(self._tasks)

    async def aclose(self) -> None:
        """Give up."""
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
        """Gives up what is expired, and everything when others can't get in."""
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
                # As in the inbox: those behind it have not done anything.
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
