"""HTTP by hand, for requests that no client library would send."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

TIMEOUT_S = 60.0
UPGRADE_HEADERS = (
    "Host: localhost\r\n"
    "Connection: Upgrade\r\n"
    "Upgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


class Answer(NamedTuple):
    """A whole HTTP answer; status 0 if the connection ended without one."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextlib.asynccontextmanager
async def tcp(
    port: int, address: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a TCP connection, aborted at the end; `address` is the client's loopback address."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader, timeout_s: float = TIMEOUT_S) -> Answer:
    """Read one answer; its body up to Content-Length, or to the end without one."""
    try:
        async with asyncio.timeout(timeout_s):
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines if line)
            }
            status = int(first.split(" ")[1])
            if status == 101:
                return Answer(status, headers, b"")
            if "content-length" in headers:
                body = await reader.readexactly(int(headers["content-length"]))
            else:
                body = await reader.read(-1)
    except (asyncio.IncompleteReadError, ConnectionError):
        return Answer(0, {}, b"")
    return Answer(status, headers, body)


async def exchange(port: int, request: bytes, timeout_s: float = TIMEOUT_S) -> Answer:
    """Send bytes on a new connection and read the answer."""
    async with tcp(port) as (reader, writer):
        writer.write(request)
        return await read_answer(reader, timeout_s)


async def upgrade(port: int, target: str, extra_headers: str = "") -> Answer:
    """Request a websocket at `target` (path and query), which is sent unchanged."""
    text = f"GET {target} HTTP/1.1\r\n{UPGRADE_HEADERS}{extra_headers}\r\n"
    return await exchange(port, text.encode())
