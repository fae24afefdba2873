"""SBD clients of the load generator: keys derived from twin ids, no rate limit, no keep-alive.

A bare one signs in, or stops just before that, and stays connected.
"""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

from picows import WSFrame, WSTransport, ws_connect

from proto.sbd import frames
from tests.bench.clients import (
    BINARY,
    ETHERNET_SEGMENT_BYTES,
    HANDSHAKE_TIMEOUT_S,
    SMALL_RECEIVE_BUFFER_BYTES,
    Client,
    source_address,
)
from tests.bench.envelopes import HEAD
from tests.bench.flows import Ledger
from tests.proto.sbd.pairs import Identity
from tests.support.sbd_crowd import Member


class Template:
    """One flow's packet in a buffer that is patched in place; see `envelopes.Template`."""

    def __init__(
        self, measurement: int, flow: int, destination: int, payload_size_bytes: int
    ) -> None:
        key = Identity(destination).key
        self._buffer = bytearray(frames.forward(key, bytes(payload_size_bytes)))
        self._measurement = measurement
        self._flow = flow

    def patch(self, sequence: int) -> bytearray:
        """Turn the buffer into the message with this number, and return it."""
        buffer = self._buffer
        HEAD.pack_into(buffer, frames.HEADER_BYTES, self._measurement, self._flow, sequence)
        return buffer


class SbdClient(Client):
    """One signed-in client, which counts the packets it receives."""

    def __init__(self, ledger: Ledger, twin: int) -> None:
        super().__init__(ledger, twin)
        self.identity = Identity(twin)
        self.ready = asyncio.get_running_loop().create_future()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if self.ready.done():
            super().on_ws_frame(transport, frame)
            return
        match frames.parse_from_server(frame.get_payload_as_bytes()):
            case frames.AuthRequest(nonce):
                transport.send(BINARY, frames.auth_response(self.identity.sign(nonce)))
            case frames.Ready():
                self.ready.set_result(None)

    def _from_relay(self, body: bytes) -> None:
        """Ignore new limits: this client sends as fast as it can."""


async def sign_in(ledger: Ledger, twin: int, url: str) -> SbdClient:
    """Connect a client, and return it when it can receive packets."""
    client = SbdClient(ledger, twin)
    await ws_connect(
        lambda: client,
        f"{url}/{frames.path_of_key(client.identity.key)}",
        websocket_handshake_timeout=HANDSHAKE_TIMEOUT_S,
        local_addr=(source_address(twin), 0),
    )
    async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
        await client.ready
    return client


async def stay(url: str, identity: Identity, twin: int, signs: bool, slow: bool = False) -> Member:
    """Open a bare client, and return it when it has signed in, or could sign in.

    Args:
        url: URL of the server.
        identity: identity with its key.
        twin: twin whose source address it uses.
        signs: whether it signs in.
        slow: whether its kernel buffers little.
    """
    loop = asyncio.get_running_loop()
    address = urlsplit(url)
    end = socket.socket()
    end.setblocking(False)
    if slow:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_RECEIVE_BUFFER_BYTES)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, ETHERNET_SEGMENT_BYTES)
    try:
        end.bind((source_address(twin), 0))
        await loop.sock_connect(end, (address.hostname, address.port))
        _, member = await loop.create_connection(lambda: Member(identity, signs), sock=end)
    except BaseException:
        end.close()
        raise
    async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
        await member.begun
    if member.ended:
        raise ConnectionError("the server ended a handshake")
    return member
