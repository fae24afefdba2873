"""The endpoint of streams: decides which websockets carry streams, and makes their handshake."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.consumer import AsyncConsumer

from relay.mux.options import SUBPROTOCOL
from relay.mux.wire import input_rules
from relay.server.asgi_socket import socket_of
from relay.server.scopes import has_query, is_at, refuse_over_http, user_agent_of
from relay.sessions.admission import Refusal
from relay.sessions.runtime import running

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class MuxEndpoint:
    """Endpoint of the websockets that carry streams.

    On a listener of its own, these are all websockets; on the public listener, those with a certain
    path without a query string, and those that offer the subprotocol.
    """

    def __init__(self, path: str, places: frozenset[int | str]) -> None:
        """Create the endpoint.

        Args:
            path: path on the public listener.
            places: ports and paths of its own listeners.
        """
        self._path = path
        self._places = places
        self._consumer = MuxConsumer.as_asgi()

    def takes(self, scope: dict[str, Any]) -> bool:
        """Return whether a websocket carries streams."""
        return (
            (scope["path"] == self._path and not has_query(scope))
            or SUBPROTOCOL in scope["subprotocols"]
            or is_at(scope, self._places)
        )

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve a websocket."""
        await self._consumer(scope, receive, send)


class MuxConsumer(AsyncConsumer):  # type: ignore[misc]  # channels has no types
    """One connection of a client."""

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        runtime = await running()
        event = await receive()
        server = runtime.mux
        if event["type"] != "websocket.connect" or server is None:
            return
        address = (scope.get("client") or ("", 0))[0]
        socket, pumped = socket_of(scope, receive, send)
        socket.set_rules(input_rules(server.options.bounds))
        try:
            connection = server.open(socket, address, user_agent_of(scope))
        except Refusal as refusal:
            body = refusal.text.encode()
            await refuse_over_http(scope, send, refusal.status, body, reason=refusal.text)
            return
        offered = SUBPROTOCOL in scope["subprotocols"]
        try:
            await send(
                {"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None}
            )
            socket.start(connection)
        except BaseException:
            server.left(connection, "client_close")
            raise
        if pumped is not None:
            await pumped.run()
