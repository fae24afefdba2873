"""Many SBD clients at little cost: one socket each, and the minimum of the protocol."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from proto.sbd import frames
from proto.websocket.frames import masked_frame
from tests.proto.sbd.pairs import Identity
from tests.support.raw_http import UPGRADE_HEADERS

OPENING_S = 60.0
AT_ONCE = 64
MASK = b"mask"


@dataclass(eq=False)
class Member(asyncio.Protocol):
    """One connection.

    Attributes:
        limits: number of `lbrt` messages that it received.
        ready: whether it has signed in.
        ended: whether its connection has ended.
    """

    identity: Identity
    signs: bool
    begun: asyncio.Future[None] = field(init=False)
    limits: int = 0
    ready: bool = False
    ended: bool = False
    _held: bytes = b""

    def __post_init__(self) -> None:
        self.begun = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        path = frames.path_of_key(self.identity.key)
        self.transport.write(f"GET /{path} HTTP/1.1\r\n{UPGRADE_HEADERS}\r\n".encode())

    def data_received(self, data: bytes) -> None:
        self._held += data
        if self._held.startswith(b"HTTP"):
            head, end, rest = self._held.partition(b"\r\n\r\n")
            if not end:
                return
            assert b" 101 " in head.split(b"\r\n")[0] + b" ", head
            self._held = rest
        while len(self._held) >= 2 and len(self._held) >= 2 + self._held[1]:
            size = self._held[1]
            assert size < 126, "only short messages are for it"
            message, self._held = self._held[2 : 2 + size], self._held[2 + size :]
            self._take(message)

    def _take(self, message: bytes) -> None:
        match frames.parse_from_server(message):
            case frames.LimitByteNanos():
                self.limits += 1
            case frames.AuthRequest(nonce) if self.signs:
                response = frames.auth_response(self.identity.sign(nonce))
                self.transport.write(masked_frame(response, MASK))
            case frames.AuthRequest():
                self._has_begun()
            case frames.Ready():
                self.ready = True
                self._has_begun()

    def _has_begun(self) -> None:
        if not self.begun.done():
            self.begun.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self._has_begun()


@contextlib.asynccontextmanager
async def crowd(
    port: int, numbers: range, *, signs: bool = True, addresses: int = 1
) -> AsyncIterator[list[Member]]:
    """Open connections, `AT_ONCE` at a time, and abort them at the end.

    Args:
        port: port on loopback.
        numbers: numbers from which their keys are derived.
        signs: whether they finish their handshakes.
        addresses: number of source addresses.
    """
    loop = asyncio.get_running_loop()
    members = [Member(Identity(number), signs) for number in numbers]
    waiting = iter(enumerate(members))

    async def open_some() -> None:
        for number, member in waiting:
            source = (f"127.0.8.{1 + number % addresses}", 0)
            await loop.create_connection(
                lambda member=member: member, "127.0.0.1", port, local_addr=source
            )
            await member.begun

    try:
        async with asyncio.timeout(OPENING_S):
            await asyncio.gather(*(open_some() for _ in range(AT_ONCE)))
        yield members
    finally:
        for member in members:
            if hasattr(member, "transport"):
                member.transport.abort()
