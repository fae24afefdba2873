"""A real uvicorn server on loopback with a small application, in the event loop of the test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import uvicorn

from relay.server.frame_protocol import FrameProtocol
from relay.server.http_protocol import http_protocol
from relay.server.limits import ServerLimits
from relay.server.listen import ListenAddress, open_listeners
from relay.server.plain_handshake import TakeHandshake
from relay.server.small_post import TakePost
from relay.server.socket import EXTENSION, InputRules, RelaySocket
from tests.proto.websocket.oracle import FrameSpec


class Recorded:
    """A receiver that records its calls; with `echo` it sends messages back."""

    def __init__(self, relay_socket: RelaySocket, scope: dict[str, Any], *, echo: bool) -> None:
        self.socket = relay_socket
        self.scope = scope
        self.echo = echo
        self.messages: list[bytes] = []
        self.reads: list[int] = []
        self.ends: list[tuple[int, str | None]] = []
        self.writable_again = asyncio.Event()
        self.received = asyncio.Condition()
        self.ended = asyncio.Event()

    def messages_received(self, messages: list[bytes]) -> None:
        self.messages += messages
        self.reads.append(len(messages))
        if self.echo:
            self.socket.send_messages(messages)

    def writable(self) -> None:
        self.writable_again.set()

    def closed(self, code: int, detail: str | None) -> None:
        self.ends.append((code, detail))
        self.ended.set()


class Nothing:
    """A receiver that ignores all calls."""

    def messages_received(self, messages: list[bytes]) -> None: ...
    def writable(self) -> None: ...
    def closed(self, code: int, detail: str | None) -> None: ...


class EchoApp:
    """An application that accepts every websocket and echoes, unless `verdict` is set.

    It answers other requests with 200.
    """

    def __init__(self, *, echo: bool = True, rules: InputRules | None = None) -> None:
        self.echo = echo
        self.rules = rules
        self.account: int | None = None
        self.verdict: Callable[..., Any] | None = None
        self.connections: asyncio.Queue[Recorded] = asyncio.Queue()
        self.disconnects: list[dict[str, Any]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"hello"})
            return
        assert (await receive())["type"] == "websocket.connect"
        if self.verdict is not None:
            await self.verdict(scope, receive, send)
            return
        relay_socket = scope["extensions"][EXTENSION]["socket"]
        if self.rules is not None:
            relay_socket.set_rules(self.rules)
        await send({"type": "websocket.accept"})
        recorded = Recorded(relay_socket, scope, echo=self.echo)
        relay_socket.start(recorded, self.account)
        self.connections.put_nowait(recorded)
        self.disconnects.append(await receive())


class Running:
    """A started server.

    Attributes:
        failures: Reports of the loop about callbacks that raised an exception.
    """

    def __init__(self, app: Any, limits: ServerLimits, address: Any) -> None:
        self.failures: list[dict[str, Any]] = []
        self.app = app
        self.limits = limits
        self.address = address
        self.clients: list[asyncio.StreamWriter] = []

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.address[1]}/"

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection that is closed with the server at the latest."""
        if isinstance(self.address, str):
            reader, writer = await asyncio.open_unix_connection(self.address)
        else:
            reader, writer = await asyncio.open_connection(*self.address[:2])
        self.clients.append(writer)
        return reader, writer


@contextlib.asynccontextmanager
async def running(
    app: Any = None,
    limits: ServerLimits | None = None,
    *,
    host: str = "127.0.0.1",
    path: str | None = None,
    ws: Any = FrameProtocol,
    take_post: TakePost | None = None,
    take_handshake: TakeHandshake | None = None,
    elsewhere: bool = False,
    **options: Any,
) -> AsyncIterator[Running]:
    """Serve `app` on a free port of a host, or on a Unix socket, and stop it at the end.

    `take_post` is offered small POSTs to `/`. `take_handshake` gets plain handshakes, unless
    `elsewhere` says that they are served elsewhere. `ws` gets websockets, like uvicorn's option.
    The context fails if there are `failures` at the end.
    """
    app = app or EchoApp()
    limits = limits or ServerLimits()
    if path is not None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
    else:
        (listener,) = open_listeners(ListenAddress(host), backlog=1024)
    address = listener.getsockname()
    config = uvicorn.Config(
        app,
        http=http_protocol(
            limits,
            take_post,
            [b"/"] if take_post is not None else (),
            take_handshake,
            [address[1]] if elsewhere else (),
        ),
        ws=ws,
        lifespan="off",
        log_config=None,
        timeout_graceful_shutdown=5,
        **options,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0)
    started = Running(app, limits, address)
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: started.failures.append(context)
    )
    try:
        yield started
    finally:
        server.should_exit = True
        await task
        for client in started.clients:
            client.transport.abort()
            with contextlib.suppress(OSError):
                await client.wait_closed()
    assert not started.failures


HANDSHAKE = (
    b"GET /x?secret-token HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\n\r\n"
)


async def raw_websocket(
    server: Running,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Recorded]:
    """Open a websocket without a client library."""
    reader, writer = await server.open()
    writer.write(HANDSHAKE)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    return reader, writer, await server.app.connections.get()


def frame(payload: bytes, opcode: int = 2, *, final: bool = True) -> bytes:
    return FrameSpec(opcode, payload, final=final).serialize()


async def read_close(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Read frames up to a close frame, and return its code and reason."""
    while True:
        first, second = await reader.readexactly(2)
        size = second
        if size == 126:
            size = int.from_bytes(await reader.readexactly(2), "big")
        elif size == 127:
            size = int.from_bytes(await reader.readexactly(8), "big")
        payload = await reader.readexactly(size)
        if first == 0x88:
            return int.from_bytes(payload[:2], "big"), payload[2:].decode()


async def tls_websocket(
    server: Running,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Recorded]:
    """Open a websocket over TLS without a client library."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(*server.address, ssl=context, limit=1 << 16)
    server.clients.append(writer)
    writer.write(HANDSHAKE)
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer, await server.app.connections.get()


@contextlib.asynccontextmanager
async def serving_on(
    kind: str, certificate: tuple[str, str], folder: Path, limits: ServerLimits | None = None
) -> AsyncIterator[Running]:
    """Run a server on sockets that do not report what a dead client has received."""
    options: dict[str, Any] = {"path": str(folder / "s")}
    if kind == "tls":
        options = {"ssl_certfile": certificate[0], "ssl_keyfile": certificate[1]}
    async with running(EchoApp(echo=False), limits, **options) as server:
        yield server


async def websocket_on(
    kind: str, server: Running
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Recorded]:
    return await (tls_websocket(server) if kind == "tls" else raw_websocket(server))
