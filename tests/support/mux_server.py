"""A server of streams on the relay's websockets, in the test's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from peer.mux.session import Handler, MuxSession
from peer.mux.stream import MuxStream
from proto.mux.bounds import MuxBounds
from relay.mux.wire import SocketWire, input_rules
from relay.server.limits import ServerLimits
from relay.server.socket import EXTENSION
from tests.relay.server.running import Running, running


class MuxApp:
    """Application that accepts every websocket as a connection of streams.

    Attributes:
        sessions: sessions in order of arrival.
    """

    def __init__(self, handler: Handler | None, bounds: MuxBounds) -> None:
        self.sessions: asyncio.Queue[MuxSession] = asyncio.Queue()
        self._handler = handler
        self._bounds = bounds

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        socket = scope["extensions"][EXTENSION]["socket"]
        socket.set_rules(input_rules(self._bounds))
        await send({"type": "websocket.accept"})
        wire = SocketWire(socket)
        session = MuxSession(False, wire, self._handler, self._bounds)
        wire.start(session)
        self.sessions.put_nowait(session)
        try:
            await session.ended.wait()
        finally:
            await session.close()


class MuxServer:
    """A running server.

    Attributes:
        has_tls: whether its scheme is `wss`.
    """

    def __init__(self, server: Running, app: MuxApp, has_tls: bool) -> None:
        self.server = server
        self.has_tls = has_tls
        self._app = app

    @property
    def port(self) -> int:
        found: int = self.server.address[1]
        return found

    async def session(self) -> MuxSession:
        """Return the next session that was accepted."""
        async with asyncio.timeout(60):
            return await self._app.sessions.get()


@contextlib.asynccontextmanager
async def mux_server(
    handler: Handler | None,
    certificate: tuple[Path, Path] | None = None,
    bounds: MuxBounds | None = None,
    **options: Any,
) -> AsyncIterator[MuxServer]:
    """Run a server during the block.

    Args:
        handler: handler of the streams that clients open.
        certificate: paths of certificate and key; without it the scheme is `ws`.
        bounds: bounds of each connection.
        options: options of `running`.
    """
    if certificate is not None:
        options |= {"ssl_certfile": str(certificate[0]), "ssl_keyfile": str(certificate[1])}
    app = MuxApp(handler, bounds or MuxBounds())
    async with running(app, ServerLimits(close_timeout_s=0.5), **options) as server:
        yield MuxServer(server, app, certificate is not None)


async def first_line(stream: MuxStream) -> tuple[str, bytes]:
    """Read the first line of a stream; return it and the data after it."""
    data = b""
    while b"\n" not in data:
        part = await stream.read()
        assert part, "the stream ended within its first line"
        data += part
    line, _, rest = data.partition(b"\n")
    return line.decode(), rest


async def echo(stream: MuxStream, first: bytes = b"") -> None:
    """Send everything back."""
    if first:
        await stream.write(first)
    async for part in stream:
        await stream.write(part)
