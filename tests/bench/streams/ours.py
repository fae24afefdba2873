"""Server and client of our streams: `python -m tests.bench.streams.ours [serve certificate key]`.

The server consists of the relay's parts: uvicorn with its HTTP and websocket protocols, and a
`SocketWire`. Paths: `/streams` echoes each stream, `/calls` serves the call `echo`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from typing import Any

import uvicorn
import uvloop

from peer.mux import MuxBounds, MuxSession, MuxStream, connect
from peer.rpc import RpcPeer, Service
from proto.mux.bounds import MAX_HEADER_BYTES
from relay.mux.wire import SocketWire
from relay.server.frame_protocol import FrameProtocol
from relay.server.http_protocol import http_protocol
from relay.server.limits import ServerLimits
from relay.server.listen import ListenAddress, open_listeners
from relay.server.socket import EXTENSION, InputRules
from tests.bench import load
from tests.bench.streams.program import CHUNK_BYTES, MESSAGE_BYTES, PARAMS, Program

BOUNDS = MuxBounds(max_streams=100_000, max_held_bytes=1 << 40)
CHUNK = bytes(CHUNK_BYTES)
MESSAGE = bytes(MESSAGE_BYTES)

service = Service()


@service.handler("echo")
async def echo_call(params: dict[str, Any]) -> dict[str, Any]:
    return params


async def echo(stream: MuxStream) -> None:
    async for data in stream:
        await stream.write(data)


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Run a session of streams on every websocket."""
    if scope["type"] != "websocket":
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})
        return
    await receive()
    handler = service.serve if scope["path"] == "/calls" else echo
    socket = scope["extensions"][EXTENSION]["socket"]
    socket.set_rules(InputRules(BOUNDS.stream_bytes + MAX_HEADER_BYTES))
    await send({"type": "websocket.accept"})
    wire = SocketWire(socket)
    session = MuxSession(False, wire, handler, BOUNDS)
    wire.start(session)
    await session.ended.wait()


async def serve(certificate: str | None = None, key: str | None = None) -> None:
    """Serve until stdin ends; print the port."""
    (listener,) = open_listeners(ListenAddress("127.0.0.1"), backlog=1024)
    config = uvicorn.Config(
        app,
        http=http_protocol(ServerLimits()),
        ws=FrameProtocol,
        lifespan="off",
        log_config=None,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0)
    print(listener.getsockname()[1], flush=True)
    async for _ in load.commands():
        pass
    server.should_exit = True
    await task


class Ours(Program):
    """Client of our streams and calls."""

    async def open(self, port: int, certificate: str | None) -> None:
        """Connect for streams and for calls."""
        tls = ssl.create_default_context(cafile=certificate) if certificate else None
        url = f"{'wss' if certificate else 'ws'}://127.0.0.1:{port}"
        self._stack = contextlib.AsyncExitStack()
        self._session, calling = [
            await self._stack.enter_async_context(connect(url + path, tls=tls, bounds=BOUNDS))
            for path in ("/streams", "/calls")
        ]
        self._peer = RpcPeer(calling)
        self._idle: list[MuxStream] = []

    async def close(self) -> None:
        """End the connections."""
        await self._stack.aclose()

    async def idle(self, streams: int) -> int:
        """Open streams that stay idle; return how many are open."""
        for _ in range(streams // 100):
            opened = [self._session.open_stream() for _ in range(100)]
            self._idle += await asyncio.gather(*opened)
        return len(self._session.mux)

    async def chunks(self) -> None:
        async with self._session.open() as stream:
            feeding = asyncio.create_task(self._feed(stream))
            async for data in stream:
                self.count += len(data)
            await feeding

    async def _feed(self, stream: MuxStream) -> None:
        while self.is_running:
            await stream.write(CHUNK)
        await stream.end()

    async def messages(self) -> None:
        async with self._session.open() as stream:
            while self.is_running:
                await stream.write(MESSAGE)
                size = MESSAGE_BYTES
                while size:
                    size -= len(await stream.read())
                self.count += 1
            await stream.end()
            await stream.read_all()

    async def calls(self) -> None:
        while self.is_running:
            if await self._peer.call("echo", PARAMS) != PARAMS:
                raise ValueError("another answer")
            self.count += 1


if __name__ == "__main__":
    is_server = sys.argv[1:2] == ["serve"]
    uvloop.run(serve(*sys.argv[2:]) if is_server else load.serve(Ours()))
