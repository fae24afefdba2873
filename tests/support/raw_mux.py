"""A client of streams that sends whatever a test specifies, valid or not."""

from __future__ import annotations

import asyncio

from proto.websocket.frames import BINARY, CLOSE, FINAL
from tests.relay.server.running import Running, frame

READ_S = 60.0


class RawMux:
    """A websocket; frames of streams are given in hexadecimal."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader

    def send(self, *frames: str) -> None:
        """Send frames in one write, so that the server reads them at once."""
        self.writer.write(b"".join(frame(bytes.fromhex(each)) for each in frames))

    def send_text(self, text: str) -> None:
        """Send a text message."""
        self.writer.write(frame(text.encode(), 1))

    async def read(self, count: int) -> list[str]:
        """Return the next frames."""
        found: list[str] = []
        async with asyncio.timeout(READ_S):
            while len(found) < count:
                opcode, payload = await self._message()
                assert opcode == BINARY, payload
                found.append(payload.hex())
        return found

    async def until(self, last: str) -> list[str]:
        """Return the next frames up to and including this one."""
        found = await self.read(1)
        while found[-1] != last:
            found += await self.read(1)
        return found

    async def closed(self) -> tuple[int, str]:
        """Skip other frames until the close frame, answer it, and return its code and text."""
        async with asyncio.timeout(READ_S):
            while True:
                opcode, payload = await self._message()
                if opcode == CLOSE:
                    self.writer.write(frame(payload, CLOSE))
                    self.writer.close()
                    return int.from_bytes(payload[:2], "big"), payload[2:].decode()

    def vanish(self) -> None:
        """End the TCP connection without a closing handshake."""
        self.writer.transport.abort()

    async def _message(self) -> tuple[int, bytes]:
        first, size = await self._reader.readexactly(2)
        assert first & FINAL
        if size == 126:
            size = int.from_bytes(await self._reader.readexactly(2), "big")
        elif size == 127:
            size = int.from_bytes(await self._reader.readexactly(8), "big")
        return first & ~FINAL, await self._reader.readexactly(size)


async def raw_mux(server: Running, path: str = "/") -> RawMux:
    """Open a websocket at a path of the server."""
    reader, writer = await server.open()
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), head
    return RawMux(reader, writer)
