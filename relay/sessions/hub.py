"""The pub/sub connection of a worker: wakes and evictions of sessions, and news for all workers.

One subscription to a channel may serve several sessions of a worker (an evicted one and its
successor), so listeners are counted; each waits for the confirmation itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from redispipe import resp
from redispipe.address import Connect
from redispipe.pipe import ANSWER_S, DISK_FULL, RedisPipe
from relay.queues import keys

log = logging.getLogger(__name__)

REFUSED_S: Final = 0.2
"""Seconds until the connection is replaced after Redis refused a subscription."""

GATHER_S: Final = 0.005
"""Minimum seconds between two commands. Sessions claim their keys when their subscriptions are
confirmed. In a rush this makes them do so together, which halves the time that Redis takes for
each. The first command is not delayed."""

Listener = Callable[[bytes], None]


class HubOwner(Protocol):
    """The worker, as far as its pub/sub connection needs it."""

    def resubscribed(self) -> None:
        """Handle a reconnect: every subscription is confirmed, but news may have been missed."""


class Hub:
    """Channels and their listeners."""

    def __init__(
        self, connect: Connect, opening: list[tuple[str | int, ...]], owner: HubOwner
    ) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[bytes, list[Listener]] = {}
        self._confirmed: set[bytes] = set()
        self._waiting: dict[bytes, list[asyncio.Future[None]]] = {}
        self._news: dict[bytes, bool] = {}  # channel -> subscribe (or unsubscribe), to be written
        self._scheduled = False
        self._flushed_at = float("-inf")  # loop time
        self._again: set[bytes] | None = None  # unconfirmed after a reconnect
        self._run_id = ""  # of the Redis that the connection leads to
        self.pipe = RedisPipe(
            connect,
            opening,
            on_up=self._up,
            on_usable=self._usable,
            on_down=self._down,
            on_push=self._pushed,
            answer_s=ANSWER_S,
            pings=True,
            quiet=True,
        )

    async def subscribe(self, channel: bytes, listener: Listener) -> None:
        """Add a listener, and wait until Redis has confirmed the subscription."""
        listeners = self._listeners.setdefault(channel, [])
        listeners.append(listener)
        if channel in self._confirmed:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(channel, []).append(future)
        if len(listeners) == 1:
            self._write(channel, True)
        await future

    def unsubscribe(self, channel: bytes, listener: Listener) -> None:
        """Remove a listener; with the last one the subscription ends."""
        listeners = self._listeners.get(channel, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners and channel in self._listeners:
            del self._listeners[channel]
            self._confirmed.discard(channel)
            self._write(channel, False)

    def follow(self, run_id: str) -> None:
        """Reconnect if news come from another Redis than the one that stores messages.

        That happens after a change of roles.
        """
        if self.pipe.usable and self._run_id != run_id:
            log.warning("news came from another redis than the one messages go to")
            self.pipe.drop()

    def _write(self, channel: bytes, subscribe: bool) -> None:
        """Collect the changes of one turn of the loop, or of several in a rush, in one command."""
        self._news.pop(channel, None)
        self._news[channel] = subscribe
        if self._scheduled:
            return
        self._scheduled = True
        pause_s = self._flushed_at + GATHER_S - self._loop.time()
        if pause_s > 0:
            self._loop.call_later(pause_s, self._flush)
        else:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        self._flushed_at = self._loop.time()
        news, self._news = self._news, {}
        if not self.pipe.usable:
            return  # `_usable` subscribes to everything
        for word, wanted in (("UNSUBSCRIBE", False), ("SUBSCRIBE", True)):
            channels = [channel for channel, subscribe in news.items() if subscribe is wanted]
            if channels:
                self.pipe.send(resp.command(word, *channels))

    async def _up(self) -> None:
        """Check that Redis is ready. Nothing is in doubt: missed news are read from the streams.

        While Redis loads it refuses everything: better this command than every subscription. It is
        a read, as PING is refused while the disk of Redis is full.
        """
        await self.pipe.call("EXISTS", keys.UNUSED)
        self._run_id = resp.info(await self.pipe.call("INFO", "server")).get("run_id", "")

    def _usable(self) -> None:
        self._news.clear()
        channels = list(self._listeners)
        self._again = set(channels) if self.pipe.connections > 1 else None
        if channels:
            self.pipe.send(resp.command("SUBSCRIBE", *channels))
        elif self._again is not None:
            self._again = None
            self._owner.resubscribed()

    def _down(self) -> None:
        self._confirmed.clear()

    def _pushed(self, reply: Any) -> None:
        if isinstance(reply, Exception):
            if str(reply).startswith(DISK_FULL):  # the reply to a ping of the pipe: Redis is alive
                return
            log.warning("redis refused a subscription: %s", reply)
            self._loop.call_later(REFUSED_S, self.pipe.drop)
            return
        if reply == b"PONG":  # without subscriptions; otherwise the pong is a push like any other
            return
        kind, channel = reply[0], reply[1]
        if kind == b"message":
            for listener in list(self._listeners.get(channel, ())):
                try:
                    listener(reply[2])
                except ValueError as error:  # of another program: the subscriptions continue
                    log.warning("malformed message on channel %r: %.200s", channel, error)
        elif kind == b"subscribe":
            if channel in self._listeners:
                self._confirmed.add(channel)
            for future in self._waiting.pop(channel, ()):
                if not future.done():
                    future.set_result(None)
            if self._again is not None:
                self._again.discard(channel)
                if not self._again:
                    self._again = None
                    self._owner.resubscribed()
        elif kind == b"unsubscribe" and channel in self._listeners:
            # A listener was added since this was requested.
            self._confirmed.discard(channel)
            self._write(channel, True)
