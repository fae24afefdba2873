"""Servers that break the protocol towards this project's client, over sockets."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from peer.mux import ConnectionEndedError, MuxSession, MuxStream, StreamFailedError, connect
from peer.mux import client as client_module
from peer.mux import session as session_module
from proto.mux import frames, varint
from proto.mux.errors import Violation
from proto.websocket.frames import binary_frames, close_frame, close_payload
from relay.server.handshake import switching_protocols
from tests.relay.server.running import EchoApp, Recorded, Running, running
from tests.support.stream_server import stream_server

TIMEOUT_S = 60.0


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Running]:
    async with running(EchoApp(echo=False)) as server:
        yield server


async def connected(server: Running) -> Recorded:
    found: Recorded = await server.app.connections.get()
    return found


BAD = {
    "empty": ("", Violation.EMPTY),
    "half an id": ("40", Violation.BAD_ID),
    "malformed": ("0100010000", Violation.MALFORMED),
    "our parity": ("02000100000040", Violation.UNKNOWN_ID),
}


@pytest.mark.parametrize(("sent", "violation"), BAD.values(), ids=BAD)
async def test_violations(server: Running, sent: str, violation: Violation) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server.url) as session:
        recorded = await connected(server)
        recorded.socket.send_messages([bytes.fromhex(sent)])
        await session.ended.wait()
        assert session.mux.counts.violation is violation
        await recorded.ended.wait()
        assert recorded.ends == [(1002, None)]


class FullWire:
    """A websocket whose other side accepts nothing."""

    is_full = True

    def __init__(self) -> None:
        self.closed: tuple[int, str] | None = None

    def send(self, messages: list[bytes]) -> None:
        raise AssertionError("it is full")

    def ping(self) -> None: ...

    def close(self, code: int, text: str) -> None:
        self.closed = (code, text)


async def test_what_waits_for_a_server_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "MAX_WAITING_FRAMES", 100)
    wire = FullWire()
    session = MuxSession(True, wire)
    for number in range(51):
        assert wire.closed is None
        session.message_received(frames.ack(varint.encode(2 * number + 1), 64))  # is refused
        await asyncio.sleep(0)
    assert wire.closed == (1002, "the other side takes no answers")
    with pytest.raises(ConnectionEndedError, match="the other side takes no answers"):
        await session.open_stream()
    session.wire_ended("closed")
    await session.close()


@pytest.fixture
def close_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "CLOSE_S", 0.1)


async def fill(stream: MuxStream) -> None:
    """Write more than the kernels' buffers hold."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            while True:
                await stream.write(bytes(1 << 20))


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.usefixtures("close_s")
async def test_a_server_that_reads_nothing(closes: bool) -> None:
    """A server that does not read delays nothing, whichever side ends the connection."""
    is_full = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        key = re.search(rb"(?i)sec-websocket-key: *(\S+)", head)
        assert key is not None
        writer.write(switching_protocols(key[1], []))
        await reader.read(100)  # the opening of stream 0
        writer.write(binary_frames([frames.ack(b"\0", 1 << 30)]))
        await is_full.wait()
        if closes:
            writer.write(close_frame(close_payload(4001, "enough")))
        await asyncio.Event().wait()

    async with asyncio.timeout(TIMEOUT_S), stream_server(serve) as server:
        async with (
            connect(f"ws://127.0.0.1:{server.port}/") as session,
            session.open() as stream,
        ):
            await fill(stream)
            is_full.set()
            if closes:
                with pytest.raises(StreamFailedError, match="reading: connection"):
                    await stream.read()
        with pytest.raises(ConnectionEndedError, match="4001 enough" if closes else "1000"):
            await session.open_stream()
