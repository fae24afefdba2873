"""A bare SBD client for tests: no rate limit, no keep-alive, every message visible."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from proto.sbd import frames
from tests.proto.sbd.pairs import Identity

ANSWER_S = 60.0


class RawClient:
    """One connection.

    Attributes:
        identity: identity with its key.
        limits: value of every `lbrt` that it received.
        idle_ms: value of the `lidl` that it received.
    """

    def __init__(
        self, url: str, identity: Identity, path: str | None = None, **options: Any
    ) -> None:
        self.identity = identity
        self.key = identity.key
        self.limits: list[int] = []
        self.idle_ms = 0
        if path is None:
            path = frames.path_of_key(identity.key)
        self._connect = connect(
            f"{url}/{path}", compression=None, max_size=None, ping_interval=None, **options
        )
        self._socket: ClientConnection

    async def __aenter__(self) -> RawClient:
        await self._open()
        await self.sign_in()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._socket.close()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[RawClient]:
        """Connect without signing in."""
        await self._open()
        try:
            yield self
        finally:
            await self._socket.close()

    async def _open(self) -> None:
        self._socket = await self._connect

    async def challenge(self) -> bytes:
        """Return the nonce that the server wants signed."""
        while True:
            frame = await self.receive_frame()
            if isinstance(frame, frames.AuthRequest):
                return frame.nonce

    async def sign_in(self) -> None:
        """Answer the server's challenge and wait until it is ready."""
        await self.send(frames.auth_response(self.identity.sign(await self.challenge())))
        while True:
            frame = await self.receive_frame()
            if isinstance(frame, frames.LimitIdle):
                self.idle_ms = frame.idle_ms
            elif isinstance(frame, frames.Ready):
                return

    async def send(self, message: bytes | str | list[bytes]) -> None:
        """Send a websocket message, or one in fragments if a list is given."""
        await self._socket.send(message)

    def write(self, data: bytes) -> None:
        """Send bytes that need not be a frame."""
        self._socket.transport.write(data)

    async def ping(self) -> None:
        """Send a ping, and wait for the answer."""
        await (await self._socket.ping())

    async def close(self, code: int) -> int | None:
        """Close, and return the code that the server answers with."""
        await self._socket.close(code)
        received = self._socket.protocol.close_rcvd
        return received.code if received is not None else None

    async def forward(self, key: bytes, payload: bytes) -> None:
        """Send a packet."""
        await self.send(frames.forward(key, payload))

    async def receive_frame(self) -> frames.FromServer:
        """Return the next message, of any kind."""
        async with asyncio.timeout(ANSWER_S):
            message = await self._socket.recv()
        assert isinstance(message, bytes)
        frame = frames.parse_from_server(message)
        if isinstance(frame, frames.LimitByteNanos):
            self.limits.append(frame.byte_nanos)
        return frame

    async def receive(self) -> frames.Forward:
        """Return the next packet; new limits may precede it."""
        while True:
            frame = await self.receive_frame()
            if isinstance(frame, frames.Forward):
                return frame
            assert isinstance(frame, frames.LimitByteNanos), frame

    async def ended(self) -> int | None:
        """Wait for the end; return the code of the close frame, or None without one."""
        try:
            while True:
                frame = await self.receive_frame()
                assert isinstance(frame, frames.LimitByteNanos), frame
        except ConnectionClosed as closed:
            return closed.rcvd.code if closed.rcvd is not None else None
