"""A test node that listens in this process, and a client that sends plain JSON-RPC to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio import client as websocket_client
from websockets.asyncio.client import ClientConnection

from chain.devchain.jsonrpc import RpcError
from chain.devchain.node import Node
from chain.devchain.server import Server

TIMEOUT_S = 60.0


class Wire:
    """One connection; receives answers and notifications in the order in which they were sent."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.told: list[dict[str, Any]] = []
        self._number = 0

    async def send(self, method: str, params: Any = None) -> int:
        """Send a request and return its id."""
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or []}
        await self.socket.send(json.dumps(request))
        return self._number

    async def message(self) -> dict[str, Any]:
        """Return the next message of any kind."""
        async with asyncio.timeout(TIMEOUT_S):
            message: dict[str, Any] = json.loads(await self.socket.recv())
        return message

    async def call(self, method: str, params: Any = None) -> Any:
        """Call a method and return its result; keep notifications that come before it for later.

        Raises:
            RpcError: the node answered with an error.
        """
        number = await self.send(method, params)
        while True:
            answer = await self.message()
            if "method" in answer:
                self.told.append(answer)
                continue
            assert answer["id"] == number
            if "error" in answer:
                error = answer["error"]
                raise RpcError(error["code"], error["message"], error.get("data"))
            return answer["result"]

    async def notification(self) -> dict[str, Any]:
        """Return the next notification: method, and params with subscription and result."""
        return self.told.pop(0) if self.told else await self.message()


class Serving:
    """A listening node."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.url = f"ws://127.0.0.1:{server.port}"

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Wire]:
        """Connect a client."""
        async with websocket_client.connect(
            self.url, compression=None, max_size=None, open_timeout=TIMEOUT_S
        ) as socket:
            yield Wire(socket)


@contextlib.asynccontextmanager
async def serving(node: Node) -> AsyncIterator[Serving]:
    """Let a node listen and make blocks at its pace."""
    server = Server(node)
    await server.start("127.0.0.1", 0)
    pace = asyncio.create_task(server.run())
    try:
        yield Serving(server)
    finally:
        pace.cancel()
        await asyncio.gather(pace, return_exceptions=True)
        await server.stop()


@contextlib.asynccontextmanager
async def connected(node: Node) -> AsyncIterator[Wire]:
    """Let a node listen, and connect a client to it."""
    async with serving(node) as place, place.client() as wire:
        yield wire
