"""Requests to the operator site: heads have bounds in time and size, all else is as ever."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect

from relay.server.http_protocol import http_protocol
from relay.server.limits import ServerLimits
from relay.server.listen import ListenAddress, open_listeners

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"


class App:
    """Answers with the size of the body; echoes one websocket message."""

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


@contextlib.asynccontextmanager
async def running(limits: ServerLimits, app: App | None = None) -> AsyncIterator[int]:
    config = uvicorn.Config(
        app or App(), http=http_protocol(limits), ws="websockets-sansio", lifespan="off",
        log_config=None, timeout_graceful_shutdown=5,
    )  # fmt: skip
    server = uvicorn.Server(config)
    (listener,) = open_listeners(ListenAddress("127.0.0.1"), backlog=16)
    task = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await task


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.transport.abort()
    return answer


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
    async with running(ServerLimits()) as port:
        answer = await ask(port, request_bytes)
        assert answer.startswith((b"HTTP/1.1 414 ", b"HTTP/1.1 431 "))


async def test_a_head_that_takes_too_long() -> None:
    async with running(limits := ServerLimits(handshake_timeout_s=0.2)) as port:
        assert await ask(port, b"") == b""
        assert await ask(port, GET) == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"0!")
        assert len(limits.handshakes) == 0
        writer.write(GET)
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.transport.abort()


async def test_what_is_within_the_bounds() -> None:
    async with running(ServerLimits(handshake_timeout_s=0.5)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for size in (0, 3_000_000, 5):
            head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % size
            writer.write(head + b"X: " + b"h" * 15_000 + b"\r\n\r\n" + b"b" * size)
            assert b" 200 " in await reader.readuntil(b"\r\n")
            await reader.readuntil(b"%d!" % size)
        writer.transport.abort()
        async with connect(f"ws://127.0.0.1:{port}/") as websocket:
            await asyncio.sleep(0.7)  # longer than a head may take
            await websocket.send("alive")
            assert await websocket.recv() == "alive"
