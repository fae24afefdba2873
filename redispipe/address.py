"""Address of Redis: a URL, and the raw connections that are opened to it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

Connect = Callable[[Callable[[], asyncio.Protocol]], Awaitable[asyncio.Transport]]
"""Function that opens one connection, given a protocol factory. Tests pass a simulated network."""

KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds of silence, seconds between probes, and number of unanswered probes: half a minute in
total."""

SEND_BUFFER_BYTES: Final = 2 << 20
"""Send buffer of a Unix socket, as far as the system allows it (``net.core.wmem_max``).

It must hold a whole batch. With the usual 208 KiB, Redis processes a part of the batch and then
waits for this process, which is busy with its other sockets. A TCP socket's buffer grows by itself.
"""


ADDRESS_S: Final = 2.0
"""Time-out for one address of a name that has others: it may drop all packets sent to it."""


DEFAULT_PORT: Final = 6379
DATABASE: Final = re.compile(r"[0-9]{1,9}")
UNESCAPED: Final = "in a user name or password write / as %2F, ? as %3F, # as %23 and @ as %40"


class RedisAddressError(ValueError):
    """The URL cannot be used; the message says which part and why."""


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
        """Parse a URL, and reject one that may lead elsewhere than intended.

        Of the options in the query, `db`, `username`, `password` and `ssl_ca_certs` are used.

        Raises:
            RedisAddressError: unknown scheme, bad host, port, path, database number or option. The
                message contains nothing that may be part of a password.
        """
        try:
            parts = urlsplit(url)
        except ValueError:
            raise RedisAddressError("invalid host name") from None
        if parts.scheme not in ("redis", "rediss", "unix"):
            raise RedisAddressError("must begin with redis://, rediss:// or unix://")
        unix = parts.scheme == "unix"
        login, _, place = parts.netloc.rpartition("@")
        if "#" in url or "@" in parts.query or ("@" in parts.path and not (unix and not place)):
            raise RedisAddressError(UNESCAPED)
        options = _options(parts.query)
        number = options.get("db", "") or ("" if unix else parts.path.strip("/"))
        if number and not DATABASE.fullmatch(number):
            raise RedisAddressError(
                "invalid database number; use one from 0, and write a / in a password as %2F"
            )
        try:
            port = 0 if unix else DEFAULT_PORT if parts.port is None else parts.port
        except ValueError:
            port = 0
        if unix and (not url.startswith("unix://") or place or not parts.path.strip("/")):
            raise RedisAddressError("write unix:///path/to/socket")
        if not (unix or port):
            raise RedisAddressError(
                "invalid port; use 1 to 65535, and write a / in a password as %2F"
            )
        host = "" if unix else parts.hostname or ""
        if not unix:
            _check_host(host)
        user, _, password = login.partition(":")
        return cls(
            host=host,
            port=port,
            path=unquote(parts.path) if unix else "",
            tls=parts.scheme == "rediss",
            user=unquote(user) or options.get("username", ""),
            password=unquote(password) or options.get("password", ""),
            database=int(number or 0),
            ca_file=options.get("ssl_ca_certs", ""),
        )

    @property
    def url(self) -> str:
        """The address in the form that every client library reads as :meth:`parse` does."""
        login = ""
        if self.user or self.password:
            password = f":{quote(self.password, safe='')}" if self.password else ""
            login = f"{quote(self.user, safe='')}{password}@"
        if self.path:
            database = f"?db={self.database}" if self.database else ""
            return f"unix://{login}{quote(self.path)}{database}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        database = f"/{self.database}" if self.database else ""
        ca_file = f"?ssl_ca_certs={quote(self.ca_file, safe='')}" if self.ca_file else ""
        scheme = "rediss" if self.tls else "redis"
        return f"{scheme}://{login}{host}:{self.port}{database}{ca_file}"

    @property
    def shown_url(self) -> str:
        """The URL without user, password and options, for display."""
        return self._replace(user="", password="", ca_file="").url

    def __str__(self) -> str:
        """Return the address without user and password, for logs."""
        where = f"unix:{self.path}" if self.path else f"{self.host}:{self.port}"
        return f"{where}/{self.database}" + (" (tls)" if self.tls else "")

    async def connect(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        """Open one connection on the running loop.

        Raises:
            OSError: Redis does not answer; the message names the address.
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
        """Return the first commands of a new connection: log in, select the database, set the
        client name.
        """
        commands: list[tuple[str | int, ...]] = []
        if self.user:
            commands.append(("AUTH", self.user, self.password))
        elif self.password:
            commands.append(("AUTH", self.password))
        if self.database:
            commands.append(("SELECT", self.database))
        commands.append(("CLIENT", "SETNAME", name))
        return commands


def _options(query: str) -> dict[str, str]:
    """Return the options of a URL, the first of each name.

    Raises:
        RedisAddressError: an option would lead elsewhere, or weaken TLS.
    """
    options: dict[str, str] = {}
    for name, value in parse_qsl(query):
        options.setdefault(name, value)
        known = name == "ssl_ca_certs" or (name, value) == ("ssl_cert_reqs", "required")
        if (name.startswith("ssl_") and not known) or name in ("host", "port", "path"):
            raise RedisAddressError(f"option {name:.40} cannot be {value:.40}")
    return options


def _check_host(host: str) -> None:
    if not host:
        raise RedisAddressError("no host name in it")
    try:
        host.encode("idna")  # as its look-up does
    except ValueError:
        host = ""
    if not host or " " in host:
        raise RedisAddressError("invalid host name")


@contextlib.contextmanager
def _borrowed(transport: asyncio.Transport) -> Iterator[socket.socket]:
    """Provide the socket of a connection, to set its options: uvloop's own socket object rejects
    them.
    """
    borrowed = socket.socket(fileno=transport.get_extra_info("socket").fileno())
    try:
        yield borrowed
    finally:
        borrowed.detach()


def _send_buffer(connection: socket.socket) -> None:
    """Enlarge the send buffer, so that Redis does not wait for the rest of a batch."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)


def _keep_alive(connection: socket.socket) -> None:
    """Let the kernel detect that the other machine is unavailable, even if no answer is expected
    from it.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):  # not every system has them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
