"""Peers in memory, whose modules communicate through function calls instead of relays.

A call passes the same steps as through a gateway: the handler is found by its command, runs in a
task, and its answer or error comes back. `Memory.on_request` may inspect a request, hold it, or
lose it.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable

from peer.errors import ExpiredError, RemoteError, TwinNotFoundError
from peer.modules.api import CommandError, Module, Modules, Request, Response, answer
from proto.rmb.address import Address

LOG = logging.getLogger("tests.peer")
OnRequest = Callable[[Request], Awaitable[bool]]


class MemoryStore:
    """The values that a module stores; they survive the peer if the test keeps the store."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    async def put(self, name: str, value: bytes) -> None:
        self.values[name] = value

    async def remove(self, name: str) -> None:
        self.values.pop(name, None)

    async def all(self) -> dict[str, bytes]:
        return dict(self.values)


class Memory:
    """All peers of a test."""

    def __init__(self) -> None:
        self.peers: dict[int, MemoryPeer] = {}
        self.on_request: OnRequest | None = None
        """Decides whether a request is delivered; otherwise it is lost."""
        self.on_answer: OnRequest | None = None
        """Decides whether the answer to a request is delivered."""

    async def carry(self, request: Request, to: int) -> Response:
        """Send a request to a peer and return its answer, without a time-out."""
        if self.on_request is not None and not await self.on_request(request):
            await asyncio.Event().wait()
        peer = self.peers.get(to)
        if peer is None:
            raise TwinNotFoundError(to)
        handler = peer.modules.find(request.command)
        assert handler is not None, f"nobody serves {request.command}"
        found = await answer(handler(request), request.command, LOG)
        if self.on_answer is not None and not await self.on_answer(request):
            await asyncio.Event().wait()
        if found is None:
            await asyncio.Event().wait()
        if isinstance(found, CommandError):
            raise RemoteError(found.code, found.message, Address(to))
        assert found is not None
        return found


class MemoryPeer:
    """One peer, and the Context of its modules."""

    def __init__(self, memory: Memory, twin: int, store: MemoryStore | None = None) -> None:
        self._memory = memory
        self.twin = twin
        self.store = store or MemoryStore()
        self.delivered: list[Request] = []
        self.modules = Modules()
        memory.peers[twin] = self

    async def start(self, *modules: Module) -> MemoryPeer:
        """Start these modules."""
        self.modules = Modules.of(*modules)
        for module in modules:
            await module.on_start(self)
        return self

    async def stop(self) -> None:
        """Stop the modules."""
        for module in self.modules.by_prefix.values():
            await module.on_stop()

    async def call(
        self,
        twin: int | Address,
        command: str,
        payload: bytes = b"",
        *,
        timeout_s: float = 300,
        schema: str | None = None,
        tags: str | None = None,
        uid: str | None = None,
    ) -> Response:
        """Call a command as `Context.call` does; `uid` is for senders that choose it themselves."""
        to = twin.twin if isinstance(twin, Address) else twin
        deadline = int(time.time() + timeout_s)
        request = Request(
            uid or str(uuid.uuid4()),
            Address(self.twin),
            command,
            payload,
            schema,
            tags,
            deadline,
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await self._memory.carry(request, to)
        except TimeoutError:
            raise ExpiredError(f"no answer in {timeout_s} s") from None

    async def deliver(self, request: Request) -> None:
        """Deliver a request as `Context.deliver` does."""
        self.delivered.append(request)
