"""RMB clients of the load generator whose sessions are streams of one connection."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Self, cast

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from proto.mux.bounds import MAX_HEADER_BYTES, MuxBounds
from proto.mux.connection import MuxConnection
from proto.mux.events import HalfFailed, Readable, ReadEnded, StreamAccepted, StreamEnded
from proto.mux.messages import MessageReader, framed
from proto.rmb.bounds import MAX_MESSAGE_BYTES
from tests.bench.clients import BINARY, HANDSHAKE_TIMEOUT_S, Client
from tests.bench.envelopes import HEAD
from tests.bench.flows import Ledger

STREAM_BYTES = 64 * 1024
ACK_DELAY_MS = 20


class MuxClient(Client):
    """One signed-in twin on a stream.

    Attributes:
        ended: whether the session has ended.
    """

    def __init__(self, ledger: Ledger, twin: int, hub: Hub, stream_id: int) -> None:
        super().__init__(ledger, twin)
        self.ended = False
        self.signed_in: asyncio.Future[None] = hub.loop.create_future()
        self.transport = cast(WSTransport, self)  # for flows
        self._hub = hub
        self._stream_id = stream_id
        self._gone = asyncio.Event()
        self._reader = MessageReader(MAX_MESSAGE_BYTES)

    @property
    def is_disconnected(self) -> bool:
        return self.ended

    def send(self, kind: WSMsgType, payload: bytearray) -> None:
        self._hub.mux.write(self._stream_id, framed([bytes(payload)]))
        self._hub.flush_soon()

    def send_close(self, code: WSCloseCode) -> None:
        self._hub.mux.end(self._stream_id, time.monotonic_ns())
        self._hub.flush_soon()

    async def wait_disconnected(self) -> None:
        await self._gone.wait()

    def disconnect(self) -> None:
        self._hub.mux.abort(self._stream_id)
        self._hub.mux.cancel(self._stream_id)
        self._hub.flush_soon()

    def readable(self, data: bytes) -> None:
        """Handle data received on the stream."""
        ledger = self._ledger
        for message in self._reader.receive_data(data):
            if not self.signed_in.done():
                if message != b"101":
                    self.signed_in.set_exception(ConnectionError(message.decode()))
                else:
                    self.signed_in.set_result(None)
                continue
            at = len(message) - ledger.payload_size_bytes
            if at <= 0:
                self._from_relay(message)
                continue
            measurement, flow, number = HEAD.unpack_from(message, at)
            if measurement == ledger.measurement:
                ledger.flows[flow].arrived(number)
            else:
                ledger.strays += 1

    def end(self) -> None:
        """Note that the session has ended."""
        self.ended = True
        self._gone.set()
        if not self.signed_in.done():
            self.signed_in.set_exception(ConnectionError("the stream ended"))
        if not self.expected_close:
            self._ledger.closes["stream ended"] += 1


class Hub(WSListener):
    """The connection that carries the streams."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ended = False
        self.loop = asyncio.get_running_loop()
        self.mux: MuxConnection
        self._clients: dict[int, MuxClient] = {}
        self._websocket: WSTransport | None = None
        self._is_flushing = False
        self._is_full = False

    @classmethod
    async def connect(cls, url: str) -> Self:
        """Connect to a relay."""
        hub = cls(url)
        await ws_connect(
            lambda: hub,
            f"{url}/streams",
            websocket_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            max_frame_size=STREAM_BYTES + MAX_HEADER_BYTES,
        )
        return hub

    async def sign_in(self, ledger: Ledger, twin: int, token: str) -> MuxClient:
        """Sign in a twin on a new stream."""
        stream_id = self.mux.open_stream(time.monotonic_ns())
        client = self._clients[stream_id] = MuxClient(ledger, twin, self, stream_id)
        self.mux.write(stream_id, framed([token.encode()]))
        self.flush_soon()
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            await client.signed_in
        return client

    def flush_soon(self) -> None:
        """Schedule sending at the end of this turn of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self.loop.call_soon(self._flush)

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._websocket = transport
        bounds = MuxBounds(stream_bytes=STREAM_BYTES, ack_delay_ms=ACK_DELAY_MS)
        self.mux = MuxConnection(True, time.monotonic_ns(), bounds)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type is BINARY:
            self.mux.receive_data(frame.get_payload_as_bytes(), time.monotonic_ns())
            self._hear()
            self.flush_soon()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.ended = True
        self.mux.connection_lost()
        self._hear()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.flush_soon()

    def _flush(self) -> None:
        self._is_flushing = False
        if self._is_full or self.ended:
            return
        assert self._websocket is not None
        for message in self.mux.data_to_send(time.monotonic_ns()):
            self._websocket.send(BINARY, message)
        self._hear()
        due_ns = self.mux.next_timer()
        if due_ns is not None:
            self.loop.call_later(max(0.0, (due_ns - time.monotonic_ns()) / 1e9), self._time_came)

    def _time_came(self) -> None:
        self.mux.handle_timer(time.monotonic_ns())
        self.flush_soon()

    def _hear(self) -> None:
        while (event := self.mux.next_event()) is not None:
            client: Any = self._clients.get(getattr(event, "stream_id", -1))
            match event:
                case Readable(stream_id) if client:
                    client.readable(self.mux.read(stream_id, STREAM_BYTES))
                case ReadEnded(stream_id) | HalfFailed(stream_id) if client:
                    self.mux.abort(stream_id)
                    self.mux.cancel(stream_id)
                case StreamEnded(stream_id) if client:
                    self._clients.pop(stream_id).end()
                case StreamAccepted():
                    pass
