"""Network side of the node: a websocket listener, and the pace of blocks.

`Server.start` listens, `Server.run` makes blocks until it is cancelled, `Server.stop` closes all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from http import HTTPStatus
from typing import Any, Final

from websockets.asyncio import server as websocket_server
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from chain.devchain.bounds import CLOSE_TIMEOUT_S, MAX_CONNECTIONS, MAX_REQUEST_BYTES
from chain.devchain.connection import Connection
from chain.devchain.errors import ChainFullError, JournalError
from chain.devchain.methods import author, chain, dev, state, system
from chain.devchain.methods.call import Call, Caller, Method
from chain.devchain.node import Node

log = logging.getLogger(__name__)

_NODE_METHODS: Final[dict[str, Method]] = {
    **author.METHODS,
    **chain.METHODS,
    **state.METHODS,
    **system.METHODS,
}

_UNKNOWN: Final = "(unknown)"
"""Name under which requests for methods that do not exist are counted."""


class Server:
    """Server that gives clients access to a node.

    Attributes:
        port: port on which it listens, once started.
    """

    def __init__(self, node: Node) -> None:
        self.port = 0
        self._node = node
        self._connections: set[Connection] = set()
        self._accepted = 0
        self._requests: Counter[str] = Counter()
        self._listener: websocket_server.Server | None = None
        self._paced = asyncio.Event()
        self._block_wanted = False
        self._failure: JournalError | None = None
        self._methods = {**_NODE_METHODS, **dev.METHODS, "rpc_methods": _list_methods}
        node.on_ready = self._want_block
        node.on_best = self._finalize_later

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 selects a free port.

        Raises:
            OSError: the address is in use, or does not belong to this machine.
        """
        self._listener = await websocket_server.serve(
            self._serve,
            host,
            port,
            process_request=self._admit,
            max_size=MAX_REQUEST_BYTES,
            close_timeout=CLOSE_TIMEOUT_S,
            compression=None,
            # A client that is not reading does not answer pings either.
            ping_interval=None,
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def run(self) -> None:
        """Make a block whenever one is due.

        Raises:
            JournalError: the file could not be written.
        """
        while self._failure is None:
            self._paced.clear()
            try:
                await asyncio.wait_for(self._paced.wait(), self._node.knobs.block_time_s or None)
            except TimeoutError:
                self._make_block()
        raise self._failure

    async def stop(self) -> None:
        """Close all connections and the listener."""
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()

    def find(self, name: str) -> Method | None:
        """See `Site`."""
        method = self._methods.get(name)
        self._requests[name if method else _UNKNOWN] += 1
        return method

    def apply_knobs(self) -> None:
        """See `Site`."""
        self._node.apply_knobs()
        self._paced.set()
        for connection in self._connections:
            connection.release()
        if self._node.pool.has_ready():
            self._want_block()

    def drop_connections(self, spared: Caller) -> int:
        """See `Site`."""
        dropped = [each for each in self._connections if each is not spared]
        for connection in dropped:
            connection.cut()
        return len(dropped)

    def fail(self, error: JournalError) -> None:
        """See `Site`."""
        self._failure = error
        self._paced.set()

    def counts(self) -> dict[str, Any]:
        """See `Site`."""
        topics = Counter(
            topic.name.lower()
            for each in self._connections
            for topic in each.subscriptions.values()
        )
        return {
            "requests": dict(self._requests),
            "connections": len(self._connections),
            "accepted": self._accepted,
            "subscriptions": dict(topics),
            "waiting_transactions": len(self._node.pool),
        }

    def _admit(self, websocket: ServerConnection, request: Request) -> Response | None:
        if self._node.knobs.refuse_connections:
            return websocket.respond(HTTPStatus.SERVICE_UNAVAILABLE, "refused by a knob\n")
        if len(self._connections) >= MAX_CONNECTIONS:
            return websocket.respond(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections\n")
        return None

    async def _serve(self, websocket: ServerConnection) -> None:
        connection = Connection(websocket, self._node, self)
        self._connections.add(connection)
        self._accepted += 1
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    def _want_block(self) -> None:
        # Later, so that the client that sent the transaction gets its answer first.
        if self._node.knobs.instant and not self._block_wanted:
            self._block_wanted = True
            asyncio.get_running_loop().call_soon(self._make_wanted_block)

    def _make_wanted_block(self) -> None:
        self._block_wanted = False
        if self._node.knobs.instant and self._node.pool.has_ready():
            self._make_block()

    def _make_block(self) -> None:
        if self._node.knobs.stalled:
            return
        try:
            self._node.make_block()
        except ChainFullError as error:
            self._node.knobs.stalled = True
            log.error("%s; no more blocks are made by themselves", error)
        except JournalError as error:
            self.fail(error)

    def _finalize_later(self) -> None:
        delay_s = self._node.knobs.finality_delay_s
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._node.finalize)
        else:
            self._node.finalize()


def _list_methods(call: Call) -> object:
    call.positional.finish()
    # Only methods of real nodes: some clients warn about unknown names.
    return {"version": 1, "methods": sorted([*_NODE_METHODS, "rpc_methods"])}
