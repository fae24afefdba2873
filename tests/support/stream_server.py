"""Servers on asyncio's streams, run by a test, that leave nothing behind when they end.

No object owns the connections that `asyncio.start_server` accepts: one that is still open when a
test ends causes an error in whichever test the garbage collector runs in next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class StreamServer:
    """Server that passes each connection to a handler, and closes it when the handler returns."""

    def __init__(self, handler: ConnectionHandler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(
        self, hosts: str | Sequence[str] = "127.0.0.1", port: int = 0, **options: Any
    ) -> None:
        """Listen; `options` are passed to `asyncio.start_server`."""
        where = () if "sock" in options else (hosts, port)
        self._server = await asyncio.start_server(self._accept, *where, **options)

    @property
    def port(self) -> int:
        """Port on which it listens."""
        assert self._server is not None
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for task, writer in self._serving.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            writer.transport.abort()  # it arrived while the server stopped
            return
        # Not a coroutine: if cancelled before its first step, it would never close its writer.
        self._serving[asyncio.create_task(self._serve(reader, writer))] = writer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._handler(reader, writer)
        finally:
            del self._serving[task]
            writer.close()


@contextlib.asynccontextmanager
async def stream_server(
    handler: ConnectionHandler, host: str = "127.0.0.1", port: int = 0, **options: Any
) -> AsyncIterator[StreamServer]:
    """Run a server during the block; the arguments are those of `StreamServer.start`."""
    server = StreamServer(handler)
    await server.start(host, port, **options)
    try:
        yield server
    finally:
        await server.stop()
