"""Requests to the operator site: heads are bounded in time and size, all else works as usual."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from websockets.asyncio.client import connect

from relay.server.limits import ServerLimits
from tests.relay.server.running import Running, running

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


class App:
    """An application that answers with the size of the body, and echoes one websocket message."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await send({"type": "websocket.send", "text": (await receive())["text"]})
            return
        size, more = 0, True
        while more:
            part = await receive()
            size, more = size + len(part.get("body", b"")), part.get("more_body", False)
        body = b"%d!" % size
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def site(limits: ServerLimits) -> AbstractAsyncContextManager[Running]:
    """Run a server like that of the operator site."""
    return running(App(), limits, ws="websockets-sansio")


async def ask(server: Running, request: bytes) -> bytes:
    reader, writer = await server.open()
    writer.write(request)
    return await asyncio.wait_for(reader.read(), 10)


@pytest.mark.parametrize(
    "request_bytes",
    [
        GET + b"X: " + b"h" * 20_000 + b"\r\n\r\n",
        GET + b"X: " + b"h" * 3_000_000,
        GET + b"a: b\r\n" * 20_000 + b"\r\n",
        b"GET /?" + b"q" * 3_000_000,
        GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\nX: " + b"h" * 3_000_000,
    ],
)
async def test_a_head_that_is_too_large(request_bytes: bytes) -> None:
    async with site(ServerLimits()) as server:
        answer = await ask(server, request_bytes)
        assert answer.startswith((b"HTTP/1.1 414 ", b"HTTP/1.1 431 "))


async def test_a_head_that_takes_too_long() -> None:
    async with site(limits := ServerLimits(handshake_timeout_s=0.2)) as server:
        assert await ask(server, b"") == b""
        assert await ask(server, GET) == b""
        reader, writer = await server.open()
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"0!")
        assert len(limits.handshakes) == 0
        writer.write(GET)
        assert await asyncio.wait_for(reader.read(), 10) == b""


async def test_what_is_within_the_bounds() -> None:
    async with site(ServerLimits(handshake_timeout_s=0.5)) as server:
        reader, writer = await server.open()
        for size in (0, 3_000_000, 5):
            head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % size
            writer.write(head + b"X: " + b"h" * 15_000 + b"\r\n\r\n" + b"b" * size)
            assert b" 200 " in await reader.readuntil(b"\r\n")
            await reader.readuntil(b"%d!" % size)
        async with connect(server.url) as websocket:
            assert await ask(server, b"") == b"", "a head had its time, one that began later"
            await websocket.send("alive")
            assert await websocket.recv() == "alive"
