"""Servers of a test's own on asyncio's streams, of which nothing is left when they end.

A connection that `asyncio.start_server` accepts belongs to nobody: what is open when a test ends is
an error in whichever test the collector runs in next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

ConnectionHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class StreamServer:
    """Gives each connection to a handler, and closes it when that is through."""

    def __init__(self, handler: ConnectionHandler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(
        self, hosts: str | Sequence[str] = "127.0.0.1", port: int = 0, **options: Any
    ) -> None:
        """Listen; `options` are further ones of `asyncio.start_server`."""
        where = () if "sock" in options else (hosts, port)
        self._server = await asyncio.start_server(self._accept, *where, **options)

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        """Stop listening and cut every connection: nobody is there any more."""
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
            writer.transport.abort()  # it was on its way when the server stopped
            return
        # No coroutine: one that is cancelled before its first step would never see its writer.
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
    """A server for the length of the block; arguments as of `StreamServer.start`."""
    server = StreamServer(handler)
    await server.start(host, port, **options)
    try:
        yield server
    finally:
        await server.stop()
