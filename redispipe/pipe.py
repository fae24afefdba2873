"""A raw Redis connection that reconnects by itself, with replies in the order of the requests.

A program that commits thousands of messages a second needs three things that a general client does
not provide: no task or future per command, certainty about which requests were answered when the
connection breaks, and the moment of each reply in the order in which Redis executed the commands.
So a request is bytes plus a callback; the callback gets the reply, or `LinkLost` if the connection
ended before it. Handling a lost request is up to its owner: the pipe sends nothing twice.

On every new connection the opening commands run first, then the owner's `on_up` coroutine, and only
after it `usable` turns true; requests made before that are those of `on_up` alone.

A connection may be dead without any error: a firewall dropped its state, or a machine vanished. If
a connection gives no sign of life for `answer_s` although an answer is due, it is cut, but only if
Redis answers on a second connection. A Redis that is merely paused, or busy for a while, would not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import hiredis

from redispipe import resp
from redispipe.address import Connect, RedisAddress
from redispipe.errors import LinkLost
from redispipe.link import Link

log = logging.getLogger(__name__)

RETRY_S: Final = (0.02, 0.05, 0.1, 0.2)
"""Pauses between attempts to connect: the relay is back within a second of Redis."""
TOLD_REASONS: Final = 8
"""Maximum number of different reasons that are logged while connecting fails."""
CONNECT_S: Final = 5.0
"""Time-out for opening a connection, logging in and checking it."""
ANSWER_S: Final = 10.0
"""Usual value of `answer_s`: a disk that is slow to sync takes seconds."""
LOOKS: Final = 10
"""Number of times within `answer_s` that a connection is checked."""

DISK_FULL: Final = "MISCONF"
"""Prefix of Redis' errors while it cannot write to its disk. It refuses all writes, including those
that free memory, and PING."""

Callback = Callable[[Any], None]


def awaited() -> tuple[asyncio.Future[Any], Callback]:
    """Return a future for the reply of a request, and the callback that resolves it."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answered(reply: Any) -> None:
        if future.done():
            return
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)

    return future, answered


class RedisPipe:
    """A connection to Redis for one owner, which reconnects until it is closed."""

    def __init__(
        self,
        connect: Connect,
        opening: list[tuple[str | int, ...]],
        *,
        on_up: Callable[[], Awaitable[None]] | None = None,
        on_usable: Callable[[], None] | None = None,
        on_down: Callable[[], None] | None = None,
        on_push: Callable[[Any], None] | None = None,
        answer_s: float = 0.0,
        pings: bool = False,
        quiet: bool = False,
    ) -> None:
        """Create a pipe; `start` connects it.

        Args:
            connect: opens one transport for a protocol factory.
            opening: commands that every connection starts with.
            on_up: awaited on each new connection before it is `usable`; an exception drops it.
            on_usable: called right after the connection has become `usable`.
            on_down: called when a connection that was usable, or being set up, has ended.
            on_push: called with replies that no request waits for (pub/sub messages).
            answer_s: seconds after which a silent connection is cut if Redis answers on another
                one; no request may block for longer. 0 to wait for ever.
            pings: whether to ping a quiet connection; the reply is a push. For pub/sub, where it
                is not known whether a reply is due.
            quiet: whether not to log failures before the first connection, because another pipe
                logs them.
        """
        self._connect = connect
        self._opening = opening
        self._on_up = on_up
        self._on_usable = on_usable
        self._on_down = on_down
        self._on_push = on_push
        self._answer_s = answer_s
        self._pings = pings
        self._quiet = quiet
        self._link: Link | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._closing = False
        self._came_up = asyncio.Event()  # set while `usable`
        self.usable = False  # any caller may submit requests
        self.silent = False  # an answer has been due for longer than `answer_s`
        self.connections = 0  # how many connections have been usable

    @property
    def flushed(self) -> bool:
        """Whether the kernel has taken all that was written on the current connection; false over
        TLS, where this cannot be determined.
        """
        return self._link is not None and self._link.flushed

    @classmethod
    def to(
        cls,
        url: str,
        name: str,
        on_up: Callable[[], Awaitable[None]] | None = None,
        quiet: bool = False,
    ) -> RedisPipe:
        """Return a pipe to the Redis at a URL, with a name that is shown in Redis' client list.

        Raises:
            RedisAddressError: the URL cannot be used.
        """
        address = RedisAddress.parse(url)
        return cls(address.connect, address.opening(name), on_up=on_up, quiet=quiet)

    def start(self) -> None:
        """Begin to connect; `usable` turns true when that has succeeded."""
        self._task = asyncio.get_running_loop().create_task(self._keep_up())

    async def wait_usable(self) -> None:
        """Wait until requests may be submitted."""
        await self._came_up.wait()

    async def close(self) -> None:
        """Close the connection for good; unanswered requests are lost."""
        self._closing = True
        if self._link is not None:
            self._link.drop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def submit(
        self,
        payload: bytes | list[bytes],
        callback: Callback,
        skip: int = 0,
        *,
        at_once: bool = False,
    ) -> None:
        """Write a request.

        All requests of one turn of the loop are sent in one system call at its end: during a rush
        of log-ins, each makes four small requests.

        Args:
            payload: one or more encoded commands; large ones in pieces, so that none is copied.
            callback: called once, with the last reply, with the first error among the skipped ones,
                or with `LinkLost`.
            skip: number of replies before the one that counts.
            at_once: whether to send before the end of the turn; requests submitted before go first.
        """
        link = self._link
        if link is None or link.transport is None:
            callback(LinkLost("there is no connection to redis"))
            return
        link.waiting.append([skip, callback, None])
        link.write(payload, at_once)

    def send(self, payload: bytes) -> None:
        """Write commands whose replies come as pushes (SUBSCRIBE and its like)."""
        link = self._link
        if link is not None and link.transport is not None:
            link.write(payload, at_once=False)

    async def call(self, *arguments: resp.Argument) -> Any:
        """Send one command and await its reply.

        Raises:
            LinkLost: the connection ended first.
            hiredis.ReplyError: Redis refused the command.
        """
        return await self.request(resp.command(*arguments))

    async def request(self, payload: bytes, skip: int = 0) -> Any:
        """Send encoded commands and await the reply that counts; see `submit` and `call`."""
        future, answered = awaited()
        self.submit(payload, answered, skip, at_once=True)
        return await future

    async def ask(self, *arguments: resp.Argument) -> Any:
        """Do the same as `call`, for callers other than the owner: fail while the pipe is not
        usable.
        """
        if not self.usable:
            raise LinkLost("redis is away")
        return await self.call(*arguments)

    def drop(self) -> None:
        """Cut the connection; it is opened again."""
        if self._link is not None:
            self._link.drop()

    def lost(self, link: Link) -> None:
        """Record that the link has ended."""
        if link is not self._link:
            return
        self._link = None
        self.usable = self.silent = False
        self._came_up.clear()
        self._ended.set()
        if self._on_down is not None:
            self._on_down()

    def push(self, reply: Any) -> None:
        """Handle a reply that no request waits for."""
        if self._on_push is not None:
            self._on_push(reply)
        else:
            log.error("redis sent a reply that nobody asked for: %.100r", reply)

    @property
    def _starts_quietly(self) -> bool:
        return self._quiet and not self.connections

    async def _keep_up(self) -> None:
        failures = 0
        told: set[str] = set()  # reasons logged since it last worked: each is logged once
        while not self._closing:
            try:
                async with asyncio.timeout(CONNECT_S):
                    await self._open()
            except Exception as error:
                why = str(error) or "it does not answer"
                if why not in told and len(told) < TOLD_REASONS:
                    told.add(why)
                    expected = isinstance(error, OSError | hiredis.HiredisError)
                    level = logging.DEBUG if expected and self._starts_quietly else logging.WARNING
                    log.log(level, "no connection to redis: %s", why, exc_info=not expected)
                failures += 1
                self.drop()
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S)) - 1])
                continue
            if failures:
                first = self._quiet and self.connections == 1
                level = logging.INFO if first else logging.WARNING
                log.log(level, "connected to redis again after %d attempts", failures)
            failures = 0
            told.clear()
            if self._answer_s:
                await self._watch()
            await self._ended.wait()

    async def _watch(self) -> None:
        """Check the connection until it has ended, or until it was cut because it is dead."""
        link = self._link
        while link is not None and not self._ended.is_set():
            self.silent = link.look(ping=self._pings) >= self._answer_s
            if self.silent and await self._redis_answers():
                # Redis as a whole may have been unavailable and just be back: the answer may still
                # be in transit, or be retransmitted after a loss.
                await self._ends_within(self._answer_s / 2)
                if link.look(ping=False) >= self._answer_s:
                    log.warning("redis answers, but not on the connection there was: it is cut")
                    link.drop()
                    return
            await self._ends_within(self._answer_s / LOOKS)

    async def _ends_within(self, pause_s: float) -> None:
        """Wait, at most until the connection has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._ended.wait()

    async def _redis_answers(self) -> bool:
        """Return whether Redis answers on a separate connection."""
        other = RedisPipe(self._connect, self._opening)
        try:
            async with asyncio.timeout(min(CONNECT_S, self._answer_s)):
                await other._open()
                await other.call("PING")
        except hiredis.ReplyError as error:
            return str(error).startswith(DISK_FULL)
        except (OSError, TimeoutError, hiredis.HiredisError):
            return False
        finally:
            await other.close()
        return True

    async def _open(self) -> None:
        self._ended.clear()
        transport = await self._connect(lambda: Link(self))
        link = transport.get_protocol()
        if not isinstance(link, Link) or self._ended.is_set():
            raise ConnectionError("the connection ended at once")
        self._link = link
        if self._opening:
            # Send all at once, before any other request: a request between two of them would be
            # executed in a database that SELECT has not left yet.
            commands = b"".join(resp.command(*arguments) for arguments in self._opening)
            await self.request(commands, skip=len(self._opening) - 1)
        if self._on_up is not None:
            await self._on_up()
        if self._link is not link:
            raise ConnectionError("the connection ended while it was checked")
        self.connections += 1
        self.usable = True
        self._came_up.set()
        if self._on_usable is not None:
            self._on_usable()
