"""Where Redis is: one URL, turned into a way to open raw connections to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[asyncio.Transport]]
"""Opens one connection, given a protocol factory. Tests put a simulated network here."""

KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds of quiet, seconds between probes, and probes without an answer: half a minute."""

SEND_BUFFER_BYTES: Final = 2 << 20
"""What a Unix socket takes at once, as far as the system allows (``net.core.wmem_max``).

It must hold a whole batch: with the usual 208 KiB, Redis works on a part of it and then waits for
this process, which is busy with its own sockets. A TCP socket's buffer grows by itself.
"""


ADDRESS_S: Final = 2.0
"""Wait for one address of a name that has others: it may swallow what is sent to it."""


class RedisAddressError(ValueError):
    """The URL cannot be used; the text says which part and why."""


class RedisAddress(NamedTuple):
    """A parsed ``redis://``, ``rediss://`` or ``unix://`` URL."""

    host: str
    port: int
    path: str
    tls: bool
    user: str
    password: str
    database: int
    ca_file: str = ""

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """Reads a URL of the forms redis-py takes, but for those that lead elsewhere than meant.

        Of the options in the query `db`, `username`, `password` and `ssl_ca_certs` count.

        Raises:
            RedisAddressError: unknown scheme, bad host, port, path, database number or option. The
                text does not repeat the URL: it may hold a password.
        """
        try:
            parts = urlsplit(url)
        except ValueError:
            raise RedisAddressError("redis url: the host is none") from None
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise RedisAddressError("redis url: the scheme is not redis, rediss or unix")
        if "#" in url or "@" in parts.query:
            raise RedisAddressError(
                "redis url: in a user or a password # is written as %23, ? as %3F and @ as %40"
            )
        options: dict[str, str] = {}
        for name, value in parse_qsl(parts.query):
            options.setdefault(name, value)
            known = name == "ssl_ca_certs" or (name, value) == ("ssl_cert_reqs", "required")
            if (name.startswith("ssl_") and not known) or name in ("host", "port", "path"):
                raise RedisAddressError(f"redis url: {name:.40} cannot be {value:.40}")
        unix = parts.scheme == "unix"
        number = options.get("db", "") or ("" if unix else parts.path.strip("/"))
        try:
            database = int(number or 0)
            port = 0 if unix else parts.port or 6379
            host = "" if unix else parts.hostname or "localhost"
        except ValueError:
            raise RedisAddressError(
                "redis url: bad port or database number (a / in a password is written as %2F)"
            ) from None
        if unix:
            if not url.startswith("unix://") or parts.hostname or not parts.path.strip("/"):
                raise RedisAddressError("redis url: write unix:///path/to/socket")
        elif parts.netloc.endswith("@") or " " in parts.netloc:
            raise RedisAddressError("redis url: the host is none")
        elif parts.port == 0:
            raise RedisAddressError("redis url: there is no port 0")
        if database < 0:
            raise RedisAddressError("redis url: the database number is below 0")
        try:
            host.encode("idna")  # as the look-up of it does
        except ValueError:
            raise RedisAddressError("redis url: the host is none") from None
        return cls(
            host=host,
            port=port,
            path=unquote(parts.path) if unix else "",
            tls=parts.scheme == "rediss",
            user=unquote(parts.username or "") or options.get("username", ""),
            password=unquote(parts.password or "") or options.get("password", ""),
            database=database,
            ca_file=options.get("ssl_ca_certs", ""),
        )

    def __str__(self) -> str:
        """The address without user and password, fit for logs."""
        where = f"unix:{self.path}" if self.path else f"{self.host}:{self.port}"
        return f"{where}/{self.database}" + (" (tls)" if self.tls else "")

    async def connect(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        """Opens one connection on the running loop.

        Raises:
            OSError: nobody answers there; the text says where.
        """
        try:
            if self.path:
                return await self._connect_unix(factory)
            return await self._connect_tcp(factory)
        except OSError as error:
            raise ConnectionError(f"{self}: {error or 'it does not answer'}") from error

    async def _connect_unix(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        transport, _ = await asyncio.get_running_loop().create_unix_connection(factory, self.path)
        with _borrowed(transport) as connection:
            _send_buffer(connection)
        return transport

    async def _connect_tcp(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        context = ssl.create_default_context(cafile=self.ca_file or None) if self.tls else None
        found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for left, (*_, place) in zip(range(len(found) - 1, -1, -1), found, strict=True):
            try:
                async with asyncio.timeout(ADDRESS_S if left else None):
                    transport, _ = await loop.create_connection(
                        factory,
                        *place[:2],
                        ssl=context,
                        server_hostname=self.host if context else None,
                    )
            except OSError:
                if not left:
                    raise
            else:
                break
        with _borrowed(transport) as connection:
            _keep_alive(connection)
        return transport

    def opening(self, name: str) -> list[tuple[str | int, ...]]:
        """The commands a fresh connection starts with: log in, choose the database, say who."""
        commands: list[tuple[str | int, ...]] = []
        if self.user:
            commands.append(("AUTH", self.user, self.password))
        elif self.password:
            commands.append(("AUTH", self.password))
        if self.database:
            commands.append(("SELECT", self.database))
        commands.append(("CLIENT", "SETNAME", name))
        return commands


@contextlib.contextmanager
def _borrowed(transport: asyncio.Transport) -> Iterator[socket.socket]:
    """The socket of a connection, for its options: uvloop's own refuses them."""
    borrowed = socket.socket(fileno=transport.get_extra_info("socket").fileno())
    try:
        yield borrowed
    finally:
        borrowed.detach()


def _send_buffer(connection: socket.socket) -> None:
    """Has the kernel take more at once, so that Redis does not wait for the rest of a batch."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def _keep_alive(connection: socket.socket) -> None:
    """Has the kernel find out that the other machine is gone, also where nothing is asked of it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):  # not every system has them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
