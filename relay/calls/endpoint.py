"""The websocket of operators' calls, `/calls` on the operator site.

    handshake (Authorization: as for REST; without it each call brings one) -> streams -> calls

REST authenticates each call: a revoked token is refused at its next call, and open streams end
within a second. Cookies are ignored, so a page of another site cannot use an operator's session.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from peer.mux import MuxBounds, MuxSession
from peer.rpc import RpcPeer
from peer.rpc import site as operator_site
from proto.limits.addresses import place_of
from relay.calls import requests
from relay.calls.service import Calls
from relay.mux.wire import SocketWire, input_rules
from relay.ops.metric_names import series
from relay.server.asgi_socket import AsgiSocket
from relay.server.scopes import TEXT, header, refuse_over_http

PATH: Final = operator_site.PATH
MAX_CONNECTIONS: Final = 200
"""Maximum number of connections of this process."""
MAX_OF_ADDRESS: Final = 20
IDLE_S: Final = 60.0
"""Seconds between two checks for idle connections. A connection is closed if it received no call
since the last check and has no open stream."""
BOUNDS: Final = MuxBounds(stream_bytes=64 * 1024, max_streams=64)

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class Endpoint:
    """All connections of this process.

    Attributes:
        calls: number of calls by their outcome: ok, refused, declined.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._open: Counter[str] = Counter()  # connections by network of the client

    def figures(self) -> dict[str, float]:
        """Return the metrics for `/metrics`."""
        return {
            "relay_calls_connections": float(self._open.total()),
            **{
                series("relay_calls_total", outcome=outcome): float(count)
                for outcome, count in self.calls.items()
            },
        }

    async def __call__(
        self, site: requests.App, scope: dict[str, Any], receive: Receive, send: Send
    ) -> None:
        """Serve one websocket.

        Args:
            site: ASGI application that answers the requests made from calls.
        """
        await receive()  # websocket.connect
        place = place_of((scope.get("client") or ("", 0))[0])
        if self._open.total() >= MAX_CONNECTIONS or self._open[place] >= MAX_OF_ADDRESS:
            await _refuse(send, scope, 429, b"too many connections for calls are open", {})
            return
        self._open[place] += 1
        try:
            authorization = str(header(scope, b"authorization") or b"", "latin-1")
            if authorization:
                asked = requests.Request("GET", "/api/v1/me", {"authorization": authorization})
                async with requests.answer(site, scope, asked) as (head, parts):
                    body = b"".join([part async for part in parts])
                if head.status >= 400:
                    await _refuse(send, scope, head.status, body, head.headers)
                    return
            await self._serve(Calls(site, scope, authorization, self.calls), scope, receive, send)
        finally:
            self._open[place] -= 1
            if not self._open[place]:
                del self._open[place]

    async def _serve(
        self, calls: Calls, scope: dict[str, Any], receive: Receive, send: Send
    ) -> None:
        socket = AsgiSocket(receive, send, scope)
        socket.set_rules(input_rules(BOUNDS))
        await send({"type": "websocket.accept"})
        wire = SocketWire(socket)
        session = MuxSession(False, wire, calls.service.serve, BOUNDS)
        calls.peer = RpcPeer(session)
        wire.start(session)
        idle = asyncio.create_task(_close_idle(session))
        try:
            await socket.run()
        finally:
            idle.cancel()
            await session.close()
            await asyncio.gather(idle, return_exceptions=True)


endpoint: Final = Endpoint()
"""The endpoint of this process."""


async def _close_idle(session: MuxSession) -> None:
    """Close a connection once it is idle."""
    while True:
        before = session.mux.counts.accepted
        await asyncio.sleep(IDLE_S)
        if session.mux.counts.accepted == before and not len(session.mux):
            session.mux.close(1000, "idle")
            session.flush_soon()


async def _refuse(
    send: Send, scope: dict[str, Any], status: int, body: bytes, headers: Mapping[str, str]
) -> None:
    """Refuse the handshake with an HTTP response, as REST does."""
    more = [
        (name.encode(), headers[name].encode())
        for name in ("www-authenticate", "retry-after")
        if name in headers
    ]
    kind = headers.get("content-type", TEXT.decode()).encode()
    await refuse_over_http(scope, send, status, body, kind, headers=more)
