"""An echo on `AsgiSocket` for servers that support standard ASGI only; daphne runs it in a test."""

from __future__ import annotations

from typing import Any

from relay.server.asgi_socket import AsgiSocket


class Echo:
    """A receiver that echoes messages and records its end; b"close" makes it close."""

    def __init__(self, relay_socket: AsgiSocket) -> None:
        self.socket = relay_socket
        self.messages: list[bytes] = []
        self.positions: list[int] = []
        self.writables = 0
        self.ends: list[tuple[int, str | None]] = []

    def messages_received(self, messages: list[bytes]) -> None:
        self.messages += messages
        self.positions.append(self.socket.send_messages(messages))
        if messages == [b"close"]:
            self.socket.close(4001, "replaced")
        if messages == [b"abort"]:
            self.socket.abort()

    def writable(self) -> None:
        self.writables += 1

    def closed(self, code: int, detail: str | None) -> None:
        self.ends.append((code, detail))


class PlainEchoApp:
    """An application that keeps its receivers in `echoes`."""

    def __init__(self) -> None:
        self.echoes: list[Echo] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                await send({"type": (await receive())["type"] + ".complete"})
            return
        await receive()
        await send({"type": "websocket.accept"})
        relay_socket = AsgiSocket(
            receive, send, scope, max_message_bytes=500_000, close_timeout_s=0.5
        )
        echo = Echo(relay_socket)
        self.echoes.append(echo)
        relay_socket.start(echo)
        await relay_socket.run()


app = PlainEchoApp()
