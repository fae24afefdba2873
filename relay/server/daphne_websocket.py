"""daphne's websocket connection with the whole range of close codes, and their reasons.

Through autobahn's public call daphne sends an application's close with 1000 and 3000-4999 only,
fails on any other, and leaves the reason out; the relay's codes for refused input and for a drain
are those of RFC 6455.
"""

from __future__ import annotations

from typing import Any

from daphne.ws_protocol import WebSocketProtocol

from proto.websocket.frames import close_payload


class RelayWebSocketProtocol(WebSocketProtocol):  # type: ignore[misc]
    """Set as the protocol of daphne's websocket factory."""

    def handle_reply(self, message: dict[str, Any]) -> None:
        """Act on what the application sent."""
        if message.get("type") == "websocket.close" and self.state == self.STATE_OPEN:
            code = int(message.get("code") or 1000)
            payload = close_payload(code, message.get("reason") or "")
            self.sendCloseFrame(code=code, reasonUtf8=payload[2:])
        else:
            super().handle_reply(message)
