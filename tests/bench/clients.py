"""Client connections of the load generator: full ones (picows) and bare ones that only stay open.

A full client receives and counts messages. A bare one is a socket that only did the upgrade:
10,000 of them must cost the generator next to nothing, and some must stop reading.
"""

from __future__ import annotations

import asyncio
import socket
from time import perf_counter_ns
from typing import cast
from urllib.parse import urlsplit

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from proto.rmb.types_pb2 import Envelope
from tests.bench.envelopes import HEAD
from tests.bench.flows import Ledger

BINARY = WSMsgType.BINARY
CLOSE = WSMsgType.CLOSE
HANDSHAKE_TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 10.0
UPGRADE_ANSWER_BYTES = 65_536
"""Maximum size of the answer to an upgrade, in bytes; a longer one is refused."""
LARGEST_FRAME_BYTES = 16 * 1024 * 1024
SMALL_RECEIVE_BUFFER_BYTES = 4_096
"""Receive buffer of a slow reader, so that its messages wait in the relay and not in the kernel."""
ETHERNET_SEGMENT_BYTES = 1_400
"""Segment size of a slow reader: with the loopback's 64 KiB the kernel would buffer megabytes."""


class Client(WSListener):
    """One signed-in twin, which counts the messages it receives."""

    def __init__(self, ledger: Ledger, twin: int) -> None:
        self.twin = twin
        self.transport: WSTransport | None = None
        self.writable = asyncio.Event()
        self.writable.set()
        self.pongs: dict[str, asyncio.Future[None]] = {}
        self.arrival: asyncio.Future[int] | None = None  # set it to await the next arrival
        self.expected_close = False
        self._ledger = ledger

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        ledger = self._ledger
        if frame.msg_type is not BINARY:
            if frame.msg_type is CLOSE:
                self._closing(frame)
            return
        view = frame.get_payload_as_memoryview()
        at = len(view) - ledger.payload_size_bytes
        if at <= 0:
            self._from_relay(bytes(view))
            return
        measurement, flow, number = HEAD.unpack_from(view, at)
        if measurement == ledger.measurement:
            ledger.flows[flow].arrived(number)
        else:
            ledger.strays += 1
        if self.arrival is not None and not self.arrival.done():
            self.arrival.set_result(perf_counter_ns())

    def _from_relay(self, body: bytes) -> None:
        """Handle a pong or an error envelope: a relay creates no other envelopes."""
        envelope = Envelope.FromString(body)
        waiting = self.pongs.pop(envelope.uid, None)
        if waiting is not None and envelope.HasField("pong"):
            waiting.set_result(None)
        else:
            self._ledger.notices[envelope.error.message or str(envelope.WhichOneof("message"))] += 1

    def _closing(self, frame: WSFrame) -> None:
        if not self.expected_close:
            code = frame.get_close_code()
            self._ledger.closes[f"{getattr(code, 'value', code)} {frame.get_close_reason()}"] += 1
        self.expected_close = True
        if self.transport is not None:
            self.transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.writable.set()
        if not self.expected_close:
            self._ledger.closes["no close frame"] += 1

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def close(self) -> None:
        """Begin to close the connection cleanly; the relay answers with its own close frame."""
        self.expected_close = True
        assert self.transport is not None
        if not self.transport.is_disconnected:
            self.transport.send_close(WSCloseCode.OK)

    async def gone(self) -> None:
        """Wait until the connection has ended; end it if the relay does not in time."""
        assert self.transport is not None
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.transport.wait_disconnected()
        except TimeoutError:
            self._ledger.closes["no answer to a close frame"] += 1
            self.transport.disconnect()


def source_address(twin: int) -> str:
    """Return the twin's own loopback address: a relay counts handshakes by address."""
    return f"127.{1 + (twin >> 16) % 250}.{(twin >> 8) % 256}.{twin % 256}"


async def sign_in(client: Client, url: str, token: str) -> None:
    """Connect a full client."""
    await ws_connect(
        lambda: client,
        f"{url}/?{token}",
        websocket_handshake_timeout=HANDSHAKE_TIMEOUT_S,
        max_frame_size=LARGEST_FRAME_BYTES,
        local_addr=(source_address(client.twin), 0),
    )


class BareClient(asyncio.Protocol):
    """A connection that only does the upgrade; a slow one stops reading right after it."""

    def __init__(self, request: bytes, slow: bool) -> None:
        self.upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended = False
        self._request = request
        self._slow = slow
        self._answer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.upgraded.done():
            return
        self._answer += data
        if b"\r\n\r\n" not in self._answer:
            if len(self._answer) > UPGRADE_ANSWER_BYTES:
                self._fail("the answer to the upgrade does not end")
            return
        status = self._answer.split(b"\r\n", 1)[0].decode("latin-1")
        self._answer = b""
        if " 101 " not in f"{status} ":
            self._fail(status)
            return
        if self._slow:
            assert self._transport is not None
            self._transport.pause_reading()
        self.upgraded.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        if not self.upgraded.done():
            self._fail(f"connection lost: {error}")

    def _fail(self, text: str) -> None:
        self.upgraded.set_exception(ConnectionError(text))
        self.abort()

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()


async def stay(url: str, twin: int, token: str, slow: bool) -> BareClient:
    """Open a bare client and return it once it is upgraded."""
    loop = asyncio.get_running_loop()
    address = urlsplit(url)
    request = (
        f"GET /?{token} HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).encode()
    sock = socket.socket()
    sock.setblocking(False)
    if slow:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_RECEIVE_BUFFER_BYTES)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, ETHERNET_SEGMENT_BYTES)
    try:
        sock.bind((source_address(twin), 0))
        await loop.sock_connect(sock, (address.hostname, address.port))
        _, client = await loop.create_connection(lambda: BareClient(request, slow), sock=sock)
    except BaseException:
        sock.close()
        raise
    await asyncio.wait_for(client.upgraded, HANDSHAKE_TIMEOUT_S)
    return client
