"""A relay worker as a real process that a test may kill, freeze, drain and cut off from Redis.

It is started as the supervisor starts it, but without a supervisor: the successor of a killed
worker must start at once, not after a growing pause. A proxy connects the worker with Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping

from relay.server.child import Child, ChildSpec
from tests.support.redis_servers import RedisServer
from tests.support.tcp_proxy import Direction, Flow, ProxiedConnection, TcpProxy, tcp_proxy

READY_S = 60.0
COMMIT_MARK = b"relay:commit:"
PUBSUB_MARK = b"SUBSCRIBE\r\n"


class RealWorker:
    """A place for successive workers: a listener that outlives the processes that accept from it.

    Attributes:
        port, url: port of the listener, and URL of its websocket.
        name: name of the present process, which changes with each start.
        on_cut: function called with the name when its commit connection has ended.
    """

    def __init__(self, place: str, proxy: TcpProxy, settings: Mapping[str, str]) -> None:
        self.proxy = proxy
        self.on_cut: Callable[[str], None] = lambda name: None
        self._place = place
        self._settings = settings
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}"
        self._starts = 0
        self._child: Child | None = None
        self._kinds: dict[ProxiedConnection, str] = {}
        self._cuts: dict[Flow, int] = {}  # bytes that may still pass
        proxy.interceptor = self._intercept
        proxy.on_ended = self._connection_ended

    @property
    def name(self) -> str:
        return f"{self._place}{self._starts}"

    @property
    def running(self) -> bool:
        """Whether a process exists; it may be starting, frozen or draining."""
        return self._child is not None

    async def start(self) -> None:
        """Start a process, which accepts the connections made since the last one ended.

        Raises:
            TimeoutError: The process does not become ready.
        """
        self._starts += 1
        fd = self._listener.fileno()
        spec = ChildSpec(
            name=self.name,
            module="relay.server.worker_main",
            arguments=("--role", "worker", "--listen-fd", str(fd)),
            environment=self._settings,
            inherited_fds=(fd,),
        )
        self._child = await Child.spawn(spec)
        async with asyncio.timeout(READY_S):
            await self._child.ready.wait()

    async def kill(self) -> None:
        """Kill the process (SIGKILL), and wait for its end."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            await child.wait()

    async def drain(self) -> None:
        """Let the process close its sessions and end."""
        child, self._child = self._child, None
        if child is not None:
            await child.stop()

    def freeze(self) -> None:
        """Freeze the process (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the process continue (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, number)

    # Its connections to Redis

    def link(self, *, pubsub: bool) -> ProxiedConnection | None:
        """Return the newest connection that commits, or that is subscribed."""
        wanted = "pubsub" if pubsub else "commit"
        found = [each for each, kind in self._kinds.items() if kind == wanted]
        return found[-1] if found else None

    def cut_after(self, flow: Flow, size_bytes: int) -> None:
        """End a connection when this many more bytes have passed in one direction."""
        self._cuts[flow] = size_bytes

    def heal(self) -> None:
        """Undo all faults of its connections, and let new ones through."""
        self._cuts.clear()
        self.proxy.refusing = False
        for direction in Direction:
            self.proxy.resume(direction)

    def _intercept(self, flow: Flow, data: bytes) -> int | None:
        if flow.direction is Direction.TO_SERVER and flow.connection not in self._kinds:
            if COMMIT_MARK in data:
                self._kinds[flow.connection] = "commit"
            elif PUBSUB_MARK in data:
                self._kinds[flow.connection] = "pubsub"
        left = self._cuts.get(flow)
        if left is None:
            return None
        if len(data) < left:
            self._cuts[flow] = left - len(data)
            return None
        del self._cuts[flow]
        return left

    def _connection_ended(self, connection: ProxiedConnection) -> None:
        self._cuts.pop(connection.to_server, None)
        self._cuts.pop(connection.to_client, None)
        if self._kinds.pop(connection, "") == "commit":
            self.on_cut(self.name)


@contextlib.asynccontextmanager
async def real_worker(
    place: str, server: RedisServer, settings: Mapping[str, str]
) -> AsyncIterator[RealWorker]:
    """Provide a place for workers during the block; no process is started yet.

    Args:
        place: name of the place.
        server: Redis of the workers.
        settings: settings of the relay, `section.name` to value; its Redis is set here.
    """
    async with tcp_proxy(("127.0.0.1", server.port)) as proxy:
        options = {**settings, "redis.url": f"redis://127.0.0.1:{proxy.port}/0"}
        worker = RealWorker(
            place,
            proxy,
            {f"RMB_{name.upper().replace('.', '__')}": value for name, value in options.items()},
        )
        try:
            yield worker
        finally:
            worker.thaw()
            await worker.kill()
            worker._listener.close()
