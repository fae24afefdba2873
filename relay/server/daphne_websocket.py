"""daphne's websocket connection with the whole range of close codes, their reasons, and an end.

Through autobahn's public call daphne sends an application's close with 1000 and 3000-4999 only,
fails on any other, and leaves the reason out; the relay's codes for refused input and for a drain
are those of RFC 6455. And it leaves a connection open whose application has ended without a close.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from daphne.ws_protocol import WebSocketProtocol

from proto.websocket.frames import close_payload

ENDED: Final = "rmb.ended"
"""What `ending` sends to the connection behind all that the application sent."""

App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


def ending(app: App) -> App:
    """Return an application at whose end a websocket that is still open ends as well."""

    async def run(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        if scope["type"] == "websocket":
            await send({"type": ENDED})

    return run


class RelayWebSocketProtocol(WebSocketProtocol):  # type: ignore[misc]
    """Set as the protocol of daphne's websocket factory."""

    def handle_reply(self, message: dict[str, Any]) -> None:
        """Act on what the application sent."""
        if message.get("type") == "websocket.close" and self.state == self.STATE_OPEN:
            code = int(message.get("code") or 1000)
            payload = close_payload(code, message.get("reason") or "")
            self.sendCloseFrame(code=code, reasonUtf8=payload[2:])
        elif message.get("type") == ENDED:
            if self.state in (self.STATE_OPEN, self.STATE_CLOSING):
                self.dropConnection(abort=True)
        else:
            super().handle_reply(message)
