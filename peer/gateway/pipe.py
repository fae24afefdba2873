"""One Redis connection that stays up by itself, with a callback for each reply.

Several thousand small writes a second go through it, so there is neither a task nor a future per
command. A request is bytes; its callback gets the reply, or `LinkLost` when the connection ended
before. Nothing is sent twice by the pipe: what an unanswered request means is its owner's business
(`commits.py` for writes, `queues.py` for what is taken from the system lists).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import hiredis
from redis.asyncio.connection import SSLConnection, parse_url

log = logging.getLogger(__name__)

RETRY_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts to connect."""
CONNECT_S: Final = 5.0
"""A connection that takes longer to open, log in and be checked is given up."""

Argument = str | bytes | int
Callback = Callable[[Any], None]
Hook = Callable[[], Awaitable[None]]


class LinkLost(ConnectionError):
    """The reply will not come: the connection ended first. Whether it was executed is unknown."""


class RedisAddressError(ValueError):
    """The URL of Redis can't be used."""


def command(*arguments: Argument) -> bytes:
    """Encodes one command."""
    # The stub of hiredis takes a tuple of any length for one of length 1.
    packed: bytes = hiredis.pack_command(arguments)  # type: ignore[arg-type]
    return packed


class _Connection(asyncio.Protocol):
    """Feeds replies to the requests that wait, in order."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.reader = hiredis.Reader()
        self.waiting: deque[list[Any]] = deque()  # [replies to skip, callback, first error]
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while True:
            try:
                reply = self.reader.gets()
            except hiredis.ProtocolError as error:
                log.error("redis sent what is not RESP: %s", error)
                self.drop()
                return
            if reply is False:
                return
            if not self.waiting:
                log.error("redis sent a reply that nobody asked for: %.100r", reply)
                continue
            head = self.waiting[0]
            if head[0]:
                head[0] -= 1
                if head[2] is None and isinstance(reply, hiredis.ReplyError):
                    head[2] = reply
                continue
            self.waiting.popleft()
            head[1](reply if head[2] is None else head[2])

    def connection_lost(self, exc: Exception | None) -> None:
        waiting, self.waiting = self.waiting, deque()
        self.pipe.lost(self)
        lost = LinkLost("the connection to redis ended")
        for _, callback, _ in waiting:
            callback(lost)

    def drop(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class Pipe:
    """A connection to Redis for one owner, opened again for as long as the owner wants it.

    Args:
        url: `redis://`, `rediss://` or `unix://`.
        name: shown in Redis' client list.
        on_up: awaited on each new connection before it is `usable`; an exception drops it.
        on_down: called when a connection ended.

    Raises:
        RedisAddressError: the URL can't be used.
    """

    def __init__(
        self,
        url: str,
        name: str,
        on_up: Hook | None = None,
        on_down: Callable[[], None] | None = None,
    ) -> None:
        try:
            self._address = parse_url(url)
        except ValueError as error:
            raise RedisAddressError(f"redis url: {error}") from None
        self._name = name
        self._on_up = on_up
        self._on_down = on_down
        self._connection: _Connection | None = None
        self._task: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._usable = asyncio.Event()
        self.connections = 0  # how many have been usable

    @property
    def usable(self) -> bool:
        """Whether requests can be sent."""
        return self._usable.is_set()

    @property
    def flushed(self) -> bool:
        """Whether the kernel has taken all that was written on the connection there is."""
        connection = self._connection
        if connection is None or connection.transport is None:
            return False
        return connection.transport.get_write_buffer_size() == 0

    def start(self) -> None:
        """Begins to connect."""
        self._task = asyncio.get_running_loop().create_task(self._keep_up())

    async def wait_usable(self) -> None:
        """Returns when requests can be sent."""
        await self._usable.wait()

    async def aclose(self) -> None:
        """Ends the connection for good; what is unanswered is lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.drop()

    def drop(self) -> None:
        """Cuts the connection; it is opened again."""
        if self._connection is not None:
            self._connection.drop()

    def submit(self, payload: bytes, callback: Callback, skip: int = 0) -> None:
        """Writes a request.

        Args:
            payload: one or more encoded commands.
            callback: called once, with the last reply, with the first error among the skipped
                ones, or with `LinkLost`.
            skip: how many replies come before the one that counts.
        """
        connection = self._connection
        if connection is None or connection.transport is None or connection.transport.is_closing():
            callback(LinkLost("there is no connection to redis"))
            return
        connection.waiting.append([skip, callback, None])
        connection.transport.write(payload)

    async def request(self, payload: bytes, skip: int = 0) -> Any:
        """Writes a request and returns the reply that counts.

        Raises:
            LinkLost: the connection ended first.
            hiredis.ReplyError: Redis refused a command.
        """
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(reply: Any) -> None:
            if future.done():
                return
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)

        self.submit(payload, answered, skip)
        return await future

    async def call(self, *arguments: Argument) -> Any:
        """Sends one command and returns its reply; raises as `request`."""
        return await self.request(command(*arguments))

    def lost(self, connection: _Connection) -> None:
        """The connection tells that it has ended."""
        if connection is not self._connection:
            return
        self._connection = None
        self._usable.clear()
        self._ended.set()
        if self._on_down is not None:
            self._on_down()

    async def _keep_up(self) -> None:
        failures = 0
        while True:
            try:
                async with asyncio.timeout(CONNECT_S):
                    await self._open()
            except (OSError, TimeoutError, hiredis.HiredisError) as error:
                if not failures:
                    log.warning("no connection to redis: %s", error or "it does not answer")
                self.drop()
                await asyncio.sleep(RETRY_S[min(failures, len(RETRY_S) - 1)])
                failures += 1
                continue
            if failures:
                log.warning("connected to redis again after %d attempts", failures)
            failures = 0
            await self._ended.wait()

    async def _open(self) -> None:
        self._ended.clear()
        connection = _Connection(self)
        await self._connect(connection)
        self._connection = connection
        for arguments in self._opening():
            await self.call(*arguments)
        if self._on_up is not None:
            await self._on_up()
        if self._connection is not connection:
            raise ConnectionError("the connection ended while it was checked")
        self.connections += 1
        self._usable.set()

    async def _connect(self, connection: _Connection) -> None:
        loop = asyncio.get_running_loop()
        path = self._address.get("path")
        if path:
            await loop.create_unix_connection(lambda: connection, path)
            return
        tls = self._address.get("connection_class") is SSLConnection
        await loop.create_connection(
            lambda: connection,
            self._address.get("host", "localhost"),
            self._address.get("port", 6379),
            ssl=ssl.create_default_context() if tls else None,
        )

    def _opening(self) -> list[tuple[Argument, ...]]:
        """What a fresh connection starts with: log in, choose the database, say who."""
        commands: list[tuple[Argument, ...]] = []
        user, password = self._address.get("username"), self._address.get("password")
        if password:
            commands.append(("AUTH", user, password) if user else ("AUTH", password))
        if self._address.get("db"):
            commands.append(("SELECT", self._address["db"]))
        commands.append(("CLIENT", "SETNAME", self._name))
        return commands
