"""How websocket connections end: by either side, in any state of the other side."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proto.websocket.bounds import MAX_CALL_FRAMES
from proto.websocket.frames import close_payload
from relay.server.limits import ServerLimits
from relay.server.socket import EXTENSION, InputRules
from tests.proto.websocket.oracle import FrameSpec
from tests.relay.server.running import (
    HANDSHAKE,
    EchoApp,
    Nothing,
    frame,
    raw_websocket,
    read_close,
    running,
    serving_on,
    websocket_on,
)

Run = Callable[[Any], None]


def test_close_sends_frame_and_waits_for_the_peer(run: Run) -> None:
    async def main() -> None:
        async with running() as server:
            reader, writer, recorded = await raw_websocket(server)
            recorded.socket.send_messages([b"last"])
            recorded.socket.close(4001, "replaced")
            recorded.socket.close(4002, "a second one is not heard")
            sent = recorded.socket.written
            assert recorded.socket.send_messages([b"too late"]) > sent
            assert await read_close(reader) == (4001, "replaced")
            writer.write(frame(b"ignored") + frame(close_payload(4001, "replaced"), 8))
            assert await reader.read() == b""
            writer.close()
            await recorded.ended.wait()
            assert recorded.messages == []
            assert recorded.ends == [(4001, None)]
            assert recorded.socket.acknowledged() < recorded.socket.written
            assert recorded.socket.drained()

    run(main())


def test_close_is_bounded_when_the_peer_says_nothing(run: Run) -> None:
    async def main() -> None:
        async with running(limits=ServerLimits(close_timeout_s=0.2)) as server:
            reader, writer, recorded = await raw_websocket(server)
            recorded.socket.pause_reading()
            recorded.socket.close(4001, "replaced")
            assert await read_close(reader) == (4001, "replaced")
            await recorded.ended.wait()
            assert recorded.ends == [(4001, None)]
            writer.close()

    run(main())


@pytest.mark.parametrize("started", [True, False])
def test_close_of_a_client_that_sent_before_the_answer(run: Run, started: bool) -> None:
    """Early input is read up to the client's close frame, so the close needs no time-out."""

    async def main() -> None:
        app = EchoApp(echo=False)

        async def close(scope: Any, receive: Any, send: Any) -> None:
            relay_socket = scope["extensions"][EXTENSION]["socket"]
            if not started:
                relay_socket.close(4001, "replaced")
            await send({"type": "websocket.accept"})
            relay_socket.start(Nothing())
            relay_socket.close(4001, "replaced")
            await receive()

        app.verdict = close
        async with running(app, ServerLimits(close_timeout_s=20)) as server:
            reader, writer = await server.open()
            half = frame(b"second half comes later")
            writer.write(HANDSHAKE + frame(b"early") + half[:9])
            await reader.readuntil(b"\r\n\r\n")
            assert await read_close(reader) == (4001, "replaced")
            writer.write(half[9:] + frame(close_payload(4001, ""), 8))
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()

    run(main())


def test_close_of_a_client_that_was_being_held_back(run: Run) -> None:
    """The server finds the client's close frame behind frames that were held back."""

    async def main() -> None:
        async with running(EchoApp(echo=False), ServerLimits(close_timeout_s=20)) as server:
            reader, writer, recorded = await raw_websocket(server)

            def hold_back(messages: list[bytes]) -> None:
                recorded.socket.pause_reading()
                asyncio.get_running_loop().call_later(0.01, recorded.socket.close, 4001, "replaced")

            recorded.messages_received = hold_back  # type: ignore[method-assign]
            sent = frame(b"") * (MAX_CALL_FRAMES + 5) + frame(close_payload(1000, ""), 8)
            recorded.socket.data_received(sent)  # type: ignore[attr-defined]
            assert await read_close(reader) == (4001, "replaced")
            async with asyncio.timeout(5):
                assert await reader.read() == b""
            writer.close()
            await recorded.ended.wait()

    run(main())


def test_close_of_a_client_whose_later_input_is_refused(run: Run) -> None:
    """The server does not wait for a close frame behind refused input, since it cannot read it."""

    async def main() -> None:
        async with running(EchoApp(echo=False), ServerLimits(close_timeout_s=20)) as server:
            reader, writer, recorded = await raw_websocket(server)
            recorded.socket.close(4001, "replaced")
            assert await read_close(reader) == (4001, "replaced")
            writer.write(frame(b"text", 1) + frame(close_payload(4001, ""), 8))
            async with asyncio.timeout(5):
                assert await reader.read() == b""
                writer.close()
                await recorded.ended.wait()
            assert recorded.ends == [(4001, None)]

    run(main())


@pytest.mark.parametrize("kind", ["tls", "unix"])
def test_a_client_whose_input_is_refused_gets_all_before_and_the_end(
    run: Run, certificate: tuple[str, str], tmp_path: Path, kind: str
) -> None:
    async def main() -> None:
        limits = ServerLimits(close_timeout_s=20)
        async with serving_on(kind, certificate, tmp_path, limits) as server:
            reader, writer, recorded = await websocket_on(kind, server)
            position = recorded.socket.send_messages([b"m" * 1000])
            writer.write(FrameSpec(1, b"text").serialize() + FrameSpec(2, b"x" * 9000).serialize())
            async with asyncio.timeout(5):
                await reader.readexactly(1004)
                close = await reader.read()
                assert close[2:4] == b"\x03\xeb"  # 1003
                writer.close()
                await recorded.ended.wait()
            assert recorded.ends == [(1003, "text_frame")]
            assert recorded.socket.acknowledged() >= position

    run(main())


def test_close_with_a_stuck_buffer_ends_with_what_the_kernel_had(run: Run) -> None:
    async def main() -> None:
        async with running(EchoApp(echo=False)) as server:
            client = socket.create_connection(server.address)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, HANDSHAKE)
            recorded = await server.app.connections.get()
            position = 0
            while recorded.socket.buffered_bytes() < 1_000_000:
                position = recorded.socket.send_messages([b"m" * 100_000])
                await asyncio.sleep(0)
            recorded.socket.close(4001, "replaced")
            await asyncio.sleep(0.05)
            assert recorded.ends == []  # the kernel still holds what the client did not read
            received = 0
            while data := await loop.sock_recv(client, 1 << 20):
                received += len(data)
            await recorded.ended.wait()
            assert recorded.ends == [(4001, None)]
            assert received < position
            assert recorded.socket.acknowledged() <= received
            assert recorded.socket.acknowledged() > received - 1_000_000
            assert recorded.socket.drained()
            client.close()

    run(main())


def test_close_of_the_peer_while_ours_waits_for_the_buffer(run: Run) -> None:
    """Earlier messages are sent in the same turn, then the server's close frame, then the end."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        failures: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: failures.append(context))
        async with running(EchoApp(echo=False)) as server:
            client = socket.create_connection(server.address)
            client.setblocking(False)
            await loop.sock_sendall(client, HANDSHAKE)
            recorded = await server.app.connections.get()
            recorded.messages_received = (  # type: ignore[method-assign]
                lambda messages: recorded.socket.close(4001, "replaced")
            )
            while not recorded.socket.buffered_bytes():
                recorded.socket.send_messages([b"m" * 1000])
            received = bytearray()
            with contextlib.suppress(BlockingIOError):
                while True:
                    received += client.recv(1 << 20)
            client.sendall(frame(b"message") + frame(close_payload(1000, ""), 8))
            while data := await loop.sock_recv(client, 1 << 20):
                received += data
            client.close()
            await recorded.ended.wait()
            assert failures == []
            assert received.endswith(b"m" * 1000 + b"\x88\x0a\x0f\xa1replaced")
            assert recorded.ends == [(4001, None)]

    run(main())


def test_end_without_close_frame(run: Run) -> None:
    async def main() -> None:
        async with running() as server:
            _, writer, recorded = await raw_websocket(server)
            writer.close()
            await recorded.ended.wait()
            assert recorded.ends == [(1006, None)]

            _, writer, recorded = await raw_websocket(server)
            recorded.socket.abort()
            recorded.socket.abort()
            await recorded.ended.wait()
            assert recorded.ends == [(1006, None)]
            writer.close()

    run(main())


def test_server_shutdown_closes_with_1012(run: Run) -> None:
    async def main() -> None:
        async with running() as server:
            reader, writer, recorded = await raw_websocket(server)
            closing = asyncio.create_task(read_close(reader))
            recorded_again = recorded
            closing.add_done_callback(lambda _: writer.write(frame(b"", 8)))
            closing.add_done_callback(lambda _: writer.write_eof())
        assert await closing == (1012, "drained")
        assert recorded_again.ends == [(1012, None)]
        writer.close()

    run(main())


@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        (frame(bytes(101)), "too_large"),
        (frame(b"\xff", 1), "protocol_error"),
        (frame(b"x", 3), "protocol_error"),
    ],
)
def test_input_that_drops_a_connection_gets_no_close_frame(
    run: Run, sent: bytes, detail: str
) -> None:
    async def main() -> None:
        async with running(EchoApp(rules=InputRules(100, takes_text=True, drops=True))) as server:
            reader, writer, recorded = await raw_websocket(server)
            writer.write(frame(b"before", 1) + sent)
            received = b""
            with contextlib.suppress(ConnectionResetError):
                while data := await reader.read(100):
                    received += data
            assert received in (b"\x82\x06before", b"")
            assert recorded.messages == [b"before"]
            await recorded.ended.wait()
            assert recorded.ends[0][1] == detail
            writer.close()

    run(main())
