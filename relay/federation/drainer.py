"""The thread in which all shards of one process are drained, on one event loop.

Celery runs each task in a thread. If each task ran an event loop of its own, the threads would
contend for the interpreter every few messages, and each would have its own connections to every
relay. So the tasks only wait here, each for the shard that it stands for.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvloop
from django.conf import settings

from relay.federation.sender import Sender, SenderOptions
from relay.ops import background
from relay.twins.source import TwinSource, open_source

if TYPE_CHECKING:
    from relay.analytics.drainer_events import DrainerEvents

log = logging.getLogger(__name__)

GC_THRESHOLDS: Final = (20_000, 20, 50)
"""Objects created between two collections, and collections of the younger generations before an
older one. Messages are freed without reference cycles."""


class Drainer:
    """The event loop, and the sender that exists while any shard is drained."""

    def __init__(self, options: Callable[[], SenderOptions], stopping: Callable[[], bool]) -> None:
        """
        Args:
            options: returns the options; called for each new sender.
            stopping: returns whether drainers have to end.
        """
        self._options = options
        self._stopping = stopping
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Lock | None = None
        self._sender: Sender | None = None
        self._source: TwinSource | None = None
        self._users = 0

    def drain(self, shard: int) -> bool:
        """Drain one shard for a while; block until it ends.

        Returns:
            Whether there are messages left for a successor.

        Raises:
            redispipe.errors.LinkLost: Redis went away.
        """
        return asyncio.run_coroutine_threadsafe(self._drain(shard), self._running()).result()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                # As in a relay worker: imported objects are not scanned at every collection.
                gc.collect()
                gc.freeze()
                gc.set_threshold(*GC_THRESHOLDS)
                self._loop = uvloop.new_event_loop()
                self._opening = asyncio.Lock()
                thread = threading.Thread(
                    target=self._loop.run_forever, name="federation", daemon=True
                )
                thread.start()
            return self._loop

    async def _drain(self, shard: int) -> bool:
        sender = await self._enter()
        try:
            return await sender.drain(shard)
        finally:
            await self._leave()

    async def _enter(self) -> Sender:
        assert self._opening is not None
        async with self._opening:
            if self._sender is None:
                self._source = open_source(settings.RMB)
                events = _events() if settings.RMB.analytics.record else None
                sender = Sender(self._options(), self._source, self._stopping, events=events)
                try:
                    await sender.start()
                except BaseException:
                    await sender.close()
                    await self._source.close()
                    raise
                self._sender = sender
            self._users += 1
            return self._sender

    async def _leave(self) -> None:
        assert self._opening is not None
        async with self._opening:
            self._users -= 1
            if self._users or self._sender is None or self._source is None:
                return
            sender, self._sender = self._sender, None
            await sender.close()
            await self._source.close()


def _events() -> DrainerEvents:
    """Return the recorder of events; imported only if it is used."""
    from relay.analytics.drainer_events import of_this_process

    return of_this_process(settings.RMB)


def options_of(config: Any) -> SenderOptions:
    """Return the sender's options from the settings."""
    federation = config.federation
    return SenderOptions(
        redis_url=config.redis.url,
        domains=tuple(config.relay.domains),
        scheme=federation.scheme,
        allow_private=federation.allow_private,
        ca_file=federation.ca_file,
        timeout_s=federation.timeout_s,
        connect_timeout_s=federation.connect_timeout_s,
        ranker_period_s=federation.ranker_period_s,
        retention_s=config.queue.retention_s,
        batch=federation.batch,
        twins_s=config.twins.cache_s,
        unknown_s=config.twins.unknown_s,
    )


drainer = Drainer(lambda: options_of(settings.RMB), background.stopping.is_set)
"""The drainer of this process."""
