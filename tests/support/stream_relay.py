"""A small relay of streams, which knows only the tokens and what the test specifies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable

from picows import (
    WSCloseCode,
    WSFrame,
    WSListener,
    WSMsgType,
    WSTransport,
    WSUpgradeRequest,
    ws_create_server,
)

from peer.mux import MuxBounds, MuxSession, MuxStream
from proto.mux.messages import MessageReader, framed
from proto.rmb import types_pb2 as pb

BOUNDS = MuxBounds(max_streams=100_000, max_held_bytes=1 << 40)
MAX_BYTES = 16 << 20


class Accepted:
    """A session at the relay.

    Attributes:
        token: token with which it signed in.
        received: messages received.
        reading: cleared to stop reading.
    """

    def __init__(self, stream: MuxStream, token: str) -> None:
        self.token = token
        self.received: list[bytes] = []
        self.ended = False
        self.reading = asyncio.Event()
        self.reading.set()
        self.stream = stream

    async def send(self, *messages: bytes) -> None:
        await self.stream.write(framed(messages))

    def close(self, code: int) -> None:
        """End the session as the relay does."""
        self.stream.abort(code)
        self.stream.cancel(code)


class StreamRelay:
    """The relay.

    Attributes:
        url: its URL.
        paths: paths of the handshakes.
        answer: function that returns the answer to a sign-in, from its token.
        sessions: present sessions by token.
        sign_ins: all tokens, in order.
        at_once: largest number of sign-ins that waited for an answer at a time.
    """

    def __init__(self) -> None:
        self.url = ""
        self.paths: list[str] = []
        self.answer: Callable[[str], str] = lambda token: "101 signed in"
        self.sessions: dict[str, Accepted] = {}
        self.sign_ins: list[str] = []
        self.at_once = 0
        self.on_session: Callable[[Accepted], None] = lambda session: None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.wires: list[_Wire] = []
        self._asking = 0

    async def serve(self, stream: MuxStream) -> None:
        """Serve one stream as a relay does."""
        self._asking += 1
        self.at_once = max(self.at_once, self._asking)
        reader = MessageReader(MAX_BYTES)
        messages: list[bytes] = []
        while not messages:
            messages = reader.receive_data(await stream.read())
        token = messages.pop(0).decode()
        self.sign_ins.append(token)
        await self.may_answer.wait()
        self._asking -= 1
        answer = self.answer(token)
        await stream.write(framed([answer.encode()]))
        if not answer.startswith("101"):
            return
        session = self.sessions[token] = Accepted(stream, token)
        self.on_session(session)
        try:
            while True:
                for message in messages:
                    await self.take(session, message)
                data = await stream.read()
                if not data:
                    break
                messages = reader.receive_data(data)
                await session.reading.wait()
        finally:
            session.ended = True

    async def take(self, session: Accepted, message: bytes) -> None:
        """Handle a message of a session."""
        session.received.append(message)

    def cut(self) -> None:
        """Cut all connections."""
        self.sessions.clear()
        wires, self.wires = self.wires, []
        for wire in wires:
            wire.cut()


class RoutingRelay(StreamRelay):
    """Relay that forwards envelopes between twins, each of which has one session.

    Attributes:
        twins: present sessions by twin.
    """

    def __init__(self) -> None:
        super().__init__()
        self.twins: dict[int, Accepted] = {}
        self.on_session = self._signed_in

    def _signed_in(self, session: Accepted) -> None:
        claims = session.token.split(".")[1]
        self.twins[json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"]] = session

    async def take(self, session: Accepted, message: bytes) -> None:
        envelope = pb.Envelope.FromString(message)
        if envelope.HasField("ping"):
            pong = pb.Envelope(uid=envelope.uid, pong=pb.Pong())
            await session.send(pong.SerializeToString())
        else:
            await self.twins[envelope.destination.twin].send(message)


class _Wire(WSListener):
    def __init__(self, relay: StreamRelay) -> None:
        self.is_full = False
        self._relay = relay
        self._websocket: WSTransport

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._websocket = transport
        self.session = MuxSession(False, self, self._relay.serve, BOUNDS)
        self._relay.wires.append(self)

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type is WSMsgType.BINARY:
            self.session.message_received(frame.get_payload_as_bytes())
        elif frame.msg_type is WSMsgType.CLOSE:
            transport.send_close(WSCloseCode.OK)
            transport.disconnect()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.is_full = True
        self.session.wire_ended("gone")

    def send(self, messages: list[bytes]) -> None:
        for message in messages:
            self._websocket.send(WSMsgType.BINARY, message)

    def ping(self) -> None:
        self._websocket.send_ping()

    def close(self, code: int, text: str) -> None:
        self._websocket.send_close(WSCloseCode(code), text)
        self._websocket.disconnect()

    def cut(self) -> None:
        self._websocket.underlying_transport.abort()

    def freeze(self) -> None:
        """Stop reading, and so answer nothing."""
        self._websocket.underlying_transport.pause_reading()


@contextlib.asynccontextmanager
async def stream_relay(
    relay: StreamRelay | None = None, port: int = 0
) -> AsyncIterator[StreamRelay]:
    """Serve on a free port, or on a given one."""
    relay = relay or StreamRelay()

    def listener(request: WSUpgradeRequest) -> WSListener:
        relay.paths.append(request.path.decode())
        return _Wire(relay)

    server = await ws_create_server(listener, "127.0.0.1", port, enable_auto_ping=False)
    relay.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield relay
    finally:
        for wire in relay.wires:
            await wire.session.close()
        server.close()
        await server.wait_closed()
