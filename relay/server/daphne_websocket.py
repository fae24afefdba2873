"""daphne's websocket connection with all close codes, with reasons, and with an end.

daphne sends an application's close through autobahn's public call, which accepts only 1000 and
3000-4999, fails with any other code, and omits the reason; the relay's codes for refused input and
for a drain are those of RFC 6455. daphne also leaves a connection open if its application ends
without a close.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from daphne.ws_protocol import WebSocketProtocol

from proto.websocket.frames import close_payload

ENDED: Final = "rmb.ended"
"""Message that `ending` sends to the connection after everything that the application sent."""

App = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


def ending(app: App) -> App:
    """Return an application whose end also ends its websocket if that is still open."""

    async def run(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await app(scope, receive, send)
        if scope["type"] == "websocket":
            await send({"type": ENDED})

    return run


class RelayWebSocketProtocol(WebSocketProtocol):  # type: ignore[misc]
    """Protocol to be set in daphne's websocket factory."""

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
