"""SBD workers in this process, on a real Redis, with clients that record what they are sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from proto.sbd import frames
from proto.sbd.bounds import NONCE_BYTES
from redispipe.address import RedisAddress
from relay.sbd.crossing import Crossing
from relay.sbd.options import SbdOptions
from relay.sbd.switch import Switch
from tests.proto.sbd.pairs import Identity
from tests.support.redis_servers import RedisServer

OPTIONS = SbdOptions(byte_nanos=0)
SETTLED_S = 60.0
MARK = bytes(32)
"""A message that all recipients ignore."""


class Line:
    """A client's socket, with the parts of `relay.server.socket.RelaySocket` that SBD uses.

    Attributes:
        written: Messages sent to the client.
        unread_bytes: Number of bytes that the client does not read.
        open: Whether the connection has not been ended.
    """

    remote = "127.0.0.1:1"

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unread_bytes = 0
        self.open = True

    def send_messages(self, payloads: list[bytes]) -> int:
        if self.open:
            self.written += payloads
        return 0

    def buffered_bytes(self) -> int:
        return self.unread_bytes

    def abort(self) -> None:
        self.open = False


class Client:
    """A client with one connection."""

    def __init__(self, worker: Worker, identity: Identity) -> None:
        self.worker = worker
        self.identity = identity
        self.key = identity.key
        self.line = Line()
        self.connection = worker.switch.open(
            self.key,
            bytes(NONCE_BYTES),
            self.line,  # type: ignore[arg-type]
            "127.0.0.1",
        )
        self.connection.start()
        self.read = 0

    @property
    def ready(self) -> bool:
        return frames.READY in self.line.written

    def sign_in(self) -> None:
        signature = self.identity.sign(bytes(NONCE_BYTES))
        self.connection.messages_received([frames.auth_response(signature)])

    def send(self, destination: bytes, *payloads: bytes) -> None:
        packets = [frames.forward(destination, payload) for payload in payloads]
        self.connection.messages_received(packets)

    def leave(self) -> None:
        self.line.open = False
        self.connection.closed(1006, None)

    def received(self) -> list[frames.Forward]:
        """Return the packets that arrived since the last call."""
        found = map(frames.parse_from_server, self.line.written[self.read :])
        self.read = len(self.line.written)
        return [frame for frame in found if isinstance(frame, frames.Forward)]


class Worker:
    """One worker: its switch, and its connection to the others."""

    def __init__(self, name: str, redis: RedisServer, options: SbdOptions = OPTIONS) -> None:
        address = RedisAddress.parse(redis.unix_url)
        self.name = name
        self.crossing = Crossing(name, address.connect, address.opening(name))
        self.switch = Switch(options, asyncio.get_running_loop(), self.crossing)

    async def start(self) -> None:
        self.crossing.start(self.switch)
        await asyncio.gather(*self.crossing._tasks)
        await until(lambda: self.crossing.usable)

    async def stop(self) -> None:
        self.switch.stop()
        await self.crossing.stop()
        for _ in range(5):  # lets aborted transports close
            await asyncio.sleep(0)

    def connect(self, identity: Identity) -> Client:
        """Connect a client and sign it in; its claim is under way."""
        client = Client(self, identity)
        client.sign_in()
        return client

    async def connected(self, identity: Identity) -> Client:
        """Connect a client, and return it once it is ready."""
        client = self.connect(identity)
        await until(lambda: client.ready)
        return client

    @property
    def hub_link(self) -> Any:
        """Transport of the worker's subscriptions."""
        return self.crossing._hub.pipe._link.transport  # type: ignore[union-attr]

    @property
    def pipe_link(self) -> Any:
        """Transport of the worker's commands."""
        return self.crossing._pipe._link.transport  # type: ignore[union-attr]


@contextlib.asynccontextmanager
async def workers(redis: RedisServer, count: int = 2) -> AsyncIterator[list[Worker]]:
    """Run `count` workers that all receive what the others publish."""
    found = [Worker("abcdef"[number], redis) for number in range(count)]
    try:
        for worker in found:
            await worker.start()
        yield found
    finally:
        for worker in found:
            await worker.stop()


async def until(check: Callable[[], Any]) -> None:
    """Wait until real connections have reached a state."""
    async with asyncio.timeout(SETTLED_S):
        while not check():
            await asyncio.sleep(0.001)


def _all_heard(told: list[bytes], wanted: int) -> bool:
    return told.count(MARK) == wanted


async def heard(*found: Worker) -> None:
    """Wait until each worker has handled all messages that were under way to it at the call."""
    for _ in range(2):  # handling messages makes the workers send others
        await asyncio.sleep(0)
        told: list[bytes] = []
        wanted = 0
        for worker in found:
            await worker.crossing.ask("PING")
        for worker in found:
            for listeners in worker.crossing._hub._listeners.values():
                listeners.insert(0, told.append)
        for worker in found:
            for channel in worker.crossing._hub._listeners:
                wanted += await worker.crossing.ask("PUBLISH", channel, MARK)
        await until(partial(_all_heard, told, wanted))
        for worker in found:
            for listeners in worker.crossing._hub._listeners.values():
                listeners.remove(told.append)
