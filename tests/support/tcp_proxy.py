"""A TCP proxy that misbehaves on demand: stalls a direction, cuts, resets, delays.

It works on bare sockets, not on streams, so that a stalled direction really stops reading: what the
peer wrote then stays in the kernels, and `ProxiedConnection.arrived` returns the bytes that had
reached the proxy, that is, those that the peer's TCP saw acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

CHUNK_BYTES = 64 * 1024
PEEK_BYTES = 16 * 1024 * 1024  # more than any receive buffer
LINGER_RESET = struct.pack("ii", 1, 0)  # close() sends RST instead of FIN


class Direction(enum.Enum):
    """Direction in which bytes pass."""

    TO_SERVER = "to server"
    TO_CLIENT = "to client"


class CutError(Exception):
    """Raised when the interceptor has cut the connection."""


# Called with each chunk before it is passed on; returns the number of bytes to pass before the
# connection is cut, or None to pass all.
Interceptor = Callable[["Flow", bytes], int | None]


@dataclass(eq=False)
class Flow:
    """One direction of one connection."""

    connection: ProxiedConnection
    direction: Direction
    source: socket.socket
    sink: socket.socket
    passed_bytes: int = 0
    held: bytes = b""  # read while stalled, not passed on
    _open: asyncio.Event = field(default_factory=asyncio.Event)

    def stall(self) -> None:
        """Stop passing bytes; at most the chunk in progress is still read from the kernel."""
        self._open.clear()

    def resume(self) -> None:
        """Continue passing bytes."""
        self._open.set()

    @property
    def stalled(self) -> bool:
        """Whether no bytes are passed."""
        return not self._open.is_set()

    async def run(self, proxy: TcpProxy) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._open.wait()
            data = await loop.sock_recv(self.source, CHUNK_BYTES)
            if proxy.delay_s:
                await asyncio.sleep(proxy.delay_s)
            if self.stalled:
                self.held = data
                await self._open.wait()
                self.held = b""
            if not data:
                with contextlib.suppress(OSError):
                    self.sink.shutdown(socket.SHUT_WR)
                return
            keep = proxy.interceptor(self, data) if proxy.interceptor is not None else None
            if keep is not None:
                data = data[:keep]
            await loop.sock_sendall(self.sink, data)
            self.passed_bytes += len(data)
            if keep is not None:
                # Close normally after the last byte, so that it arrives; the other side gets a RST.
                self.sink.close()
                raise CutError


@dataclass(eq=False)
class ProxiedConnection:
    """A client's connection and the one made for it to the server."""

    number: int
    client: socket.socket
    server: socket.socket
    to_server: Flow = field(init=False)
    to_client: Flow = field(init=False)
    flow_tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.to_server = Flow(self, Direction.TO_SERVER, self.client, self.server)
        self.to_client = Flow(self, Direction.TO_CLIENT, self.server, self.client)

    def flow(self, direction: Direction) -> Flow:
        """Return the flow of this connection in one direction."""
        return self.to_server if direction is Direction.TO_SERVER else self.to_client

    def reset(self) -> None:
        """End both sides with a TCP reset; nothing more is passed on."""
        for task in self.flow_tasks:
            task.cancel()

    def arrived(self, direction: Direction) -> bytes:
        """Return the bytes that arrived but were not passed on, the kernel's buffer included.

        They are only peeked at: reading them would open the window and let more arrive.
        """
        flow = self.flow(direction)
        assert flow.stalled, "only a stalled flow leaves its bytes behind"
        try:
            return flow.held + flow.source.recv(PEEK_BYTES, socket.MSG_PEEK)
        except (BlockingIOError, ConnectionError):
            return flow.held


class TcpProxy:
    """Proxy that listens on a loopback port and passes connections on to one server.

    Attributes:
        port: port on which it listens.
        connections: open connections, oldest first.
        interceptor: see `Interceptor`; None passes everything.
        on_ended: function called with each connection that has ended.
        delay_s: seconds of delay for each chunk, in both directions.
        refusing: whether new connections are reset at once.
    """

    def __init__(
        self, target: tuple[str, int] | str, receive_buffer_bytes: int = 0, port: int = 0
    ) -> None:
        self.target = target
        self.connections: list[ProxiedConnection] = []
        self.interceptor: Interceptor | None = None
        self.on_ended: Callable[[ProxiedConnection], None] | None = None
        self.delay_s = 0.0
        self.refusing = False
        self._receive_buffer_bytes = receive_buffer_bytes
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=1024)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._accepted = 0

    def stall(self, direction: Direction) -> None:
        """Stop passing bytes in one direction on all open connections."""
        for connection in self.connections:
            connection.flow(direction).stall()

    def resume(self, direction: Direction) -> None:
        """Undo `stall`."""
        for connection in self.connections:
            connection.flow(direction).resume()

    def reset_all(self) -> None:
        """End every open connection on both sides with a TCP reset."""
        for connection in self.connections:
            connection.reset()

    async def accept_loop(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            client, _ = await loop.sock_accept(self._listener)
            if self.refusing:
                _close(client, reset=True)
                continue
            task = asyncio.create_task(self._serve(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: socket.socket) -> None:
        family = socket.AF_UNIX if isinstance(self.target, str) else socket.AF_INET
        server = socket.socket(family, socket.SOCK_STREAM)
        server.setblocking(False)
        if self._receive_buffer_bytes:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(server, self.target)
        except OSError:
            _close(client, reset=True)
            server.close()
            return
        for end in (client, server):
            if end.family is socket.AF_INET:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._accepted += 1
        connection = ProxiedConnection(self._accepted, client, server)
        flows = (connection.to_server, connection.to_client)
        for flow in flows:
            flow.resume()
        connection.flow_tasks = [asyncio.create_task(flow.run(self)) for flow in flows]
        self.connections.append(connection)
        broken = True
        try:
            await asyncio.wait(connection.flow_tasks, return_when=asyncio.FIRST_EXCEPTION)
            broken = any(
                task.done() and (task.cancelled() or task.exception())
                for task in connection.flow_tasks
            )
        finally:
            connection.reset()
            try:
                await asyncio.gather(*connection.flow_tasks, return_exceptions=True)
            finally:  # also if the proxy is closed meanwhile
                self.connections.remove(connection)
                if self.on_ended is not None:
                    self.on_ended(connection)
                _close(client, reset=broken)
                _close(server, reset=broken)

    async def close(self) -> None:
        """End the listener and all connections."""
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _close(end: socket.socket, *, reset: bool) -> None:
    if reset and end.fileno() >= 0:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
    end.close()


@contextlib.asynccontextmanager
async def tcp_proxy(
    target: tuple[str, int] | str, receive_buffer_bytes: int = 0, port: int = 0
) -> AsyncIterator[TcpProxy]:
    """Run a proxy during the block.

    Args:
        target: (host, port) or the path of a Unix socket.
        receive_buffer_bytes: SO_RCVBUF towards the server, so that a stall takes effect early.
        port: port on which it listens; 0: a free one.
    """
    proxy = TcpProxy(target, receive_buffer_bytes, port)
    accepting = asyncio.create_task(proxy.accept_loop())
    try:
        yield proxy
    finally:
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
        await proxy.close()
