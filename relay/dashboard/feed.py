"""One subscription to frames per process, for all of its open sockets.

The site that writes the history (`relay.history.recorder`) encodes each frame once, as text, and
sends it to a group of the channel layer. This process is a member of the group while it has open
sockets. It keeps only the newest frame: a slow socket misses some, and gets the newest when it is
ready again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from channels.layers import get_channel_layer
from redis.exceptions import RedisError

from relay.history.frames import GROUP, LAYER

logger = logging.getLogger(__name__)

RENEW_S: Final = 15.0
"""Seconds until the membership is renewed; the group drops members after a minute without."""
RETRY_S: Final = 1.0
LEAVE_S: Final = 1.0
FRESH_S: Final = 2.0
"""Maximum age, in seconds, of a frame that a new socket gets at once."""


class News(NamedTuple):
    """A frame, and its number in this process."""

    number: int
    text: str


class Feed:
    """The newest frame, and the sockets that wait for the next one."""

    def __init__(self) -> None:
        self._newest = News(0, "")
        self._at = float("-inf")  # loop time of the newest
        self._news = asyncio.Event()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._told = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[int]:
        """Register a socket; yield the frame number to pass to `next` first."""
        loop = asyncio.get_running_loop()
        self._listeners += 1
        if self._task is None or self._task.done():
            self._news = asyncio.Event()
            self._task = loop.create_task(self._subscribe())
        try:
            fresh = self._newest.number and loop.time() - self._at <= FRESH_S
            yield self._newest.number - 1 if fresh else self._newest.number
        finally:
            self._listeners -= 1
            if not self._listeners:
                self._task.cancel()
                self._task = None

    async def next(self, after: int) -> News:
        """Return the newest frame, once its number differs from the given one."""
        while self._newest.number == after:
            await self._news.wait()
        return self._newest

    def publish(self, text: str) -> None:
        """Store a frame that arrived, and wake the sockets that wait for it."""
        self._newest = News(self._newest.number + 1, text)
        self._at = asyncio.get_running_loop().time()
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _subscribe(self) -> None:
        layer: Any = get_channel_layer(LAYER)
        channel = await layer.new_channel()
        try:
            while True:
                await self._receive(layer, channel)
        finally:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await layer.group_discard(GROUP, channel)

    async def _receive(self, layer: Any, channel: str) -> None:
        """Receive frames until the membership must be renewed, or Redis fails."""
        loop = asyncio.get_running_loop()
        renew_at = loop.time() + RENEW_S
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(renew_at):
                    await layer.group_add(GROUP, channel)
                    self._told = False
                    while True:
                        message = await layer.receive(channel)
                        self.publish(message["text"])
        except Exception as error:
            if not self._told:  # log each outage of Redis once
                usual = isinstance(error, (RedisError, OSError))
                logger.info("live numbers: %s", error, exc_info=None if usual else error)
                self._told = True
            await asyncio.sleep(RETRY_S)


feed: Final = Feed()
"""The feed of this process."""
