"""Websocket connections on a real server: messages, pings, closes and refused input."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from proto.websocket.errors import Fault
from proto.websocket.frames import close_payload
from relay.server.limits import ServerLimits
from relay.server.socket import EXTENSION
from tests.proto.websocket.oracle import FrameSpec
from tests.relay.server.running import (
    HANDSHAKE,
    EchoApp,
    Recorded,
    Running,
    frame,
    raw_websocket,
    read_close,
    running,
)

Run = Callable[[Any], None]


def test_echo_of_every_size_with_a_client_library(run: Run) -> None:
    async def main() -> None:
        async with running() as server, connect(server.url, compression=None, max_size=None) as c:
            for size in (0, 1, 125, 126, 65535, 65536, 3_000_000):
                await c.send(b"m" * size)
                assert await c.recv() == b"m" * size
            recorded = await server.app.connections.get()
            await c.close(4321, "tschüß")
            await recorded.ended.wait()
            assert recorded.ends == [(4321, None)]
            while not server.app.disconnects:
                await asyncio.sleep(0)
            assert server.app.disconnects == [
                {"type": "websocket.disconnect", "code": 4321, "reason": ""}
            ]

    run(main())


def test_messages_of_one_read_come_in_one_call(run: Run) -> None:
    async def main() -> None:
        async with running() as server:
            reader, writer, recorded = await raw_websocket(server)
            writer.write(frame(b"x") * 50 + frame(b""))
            await reader.readexactly(50 * 3 + 2)
            assert recorded.messages == [b"x"] * 50 + [b""]
            assert recorded.reads == [51]
            writer.close()

    run(main())


def test_bytes_sent_before_the_answer_are_not_lost(run: Run) -> None:
    async def main() -> None:
        go = asyncio.Event()
        app = EchoApp()

        async def later(scope: Any, receive: Any, send: Any) -> None:
            await go.wait()
            app.verdict = None
            feed = iter([{"type": "websocket.connect"}])

            async def again() -> Any:
                return next(feed, None) or await receive()

            await app(scope, again, send)

        app.verdict = later
        async with running(app) as server:
            reader, writer = await server.open()
            writer.write(HANDSHAKE + frame(b"first") + frame(b"half")[:4])
            await asyncio.sleep(0.05)
            writer.write(frame(b"half")[4:])
            go.set()
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(13) == b"\x82\x05first\x82\x04half"
            writer.close()

    run(main())


def test_an_application_may_return_once_its_receiver_is_started(run: Run) -> None:
    async def main() -> None:
        seen: list[Any] = []
        app = EchoApp()
        receiver: list[Recorded] = []

        async def start(scope: Any, receive: Any, send: Any) -> None:
            seen.append((scope["path"], scope["query_string"], dict(scope["headers"])[b"host"]))
            extension = scope["extensions"][EXTENSION]
            seen.append(extension["query"])
            await send({"type": "websocket.accept", "headers": [(b"x-a", b"b")]})
            receiver.append(Recorded(extension["socket"], scope, echo=True))
            extension["socket"].start(receiver[0])

        app.verdict = start
        async with running(app) as server:
            reader, writer = await server.open()
            writer.write(HANDSHAKE)
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
            assert b"x-a: b\r\n" in head
            assert seen == [("/x", b"secret-token", b"localhost"), b"secret-token"]
            writer.write(frame(b"1"))
            assert await reader.readexactly(3) == b"\x82\x011"
            writer.close()
            await receiver[0].ended.wait()

    run(main())


def test_token_never_reaches_a_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        app = EchoApp()
        async with running(app) as server:
            _reader, writer, _ = await raw_websocket(server)
            writer.close()
            reader, writer = await server.open()
            writer.write(b"GET /y?secret-token HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            await reader.read()

            async def fail(scope: Any, receive: Any, send: Any) -> None:
                raise RuntimeError("on purpose")

            app.verdict = fail
            reader, writer = await server.open()
            writer.write(HANDSHAKE)
            assert (await reader.read()).startswith(b"HTTP/1.1 500 ")
            writer.close()

    run(main())
    assert "'/x' accepted" in caplog.text
    assert "secret-token" not in caplog.text


REFUSED = [
    (frame(b"text", 1), Fault.TEXT_FRAME),
    (frame(b"x" * 2000), Fault.TOO_LARGE),
    (FrameSpec(2, b"", claimed_bytes=2**40).serialize(), Fault.TOO_LARGE),
    (FrameSpec(2, b"x", masked=False).serialize(), Fault.UNMASKED),
    (FrameSpec(2, b"x", reserved=4).serialize(), Fault.RESERVED_BIT),
    (FrameSpec(2, b"x", length_bytes=8).serialize(), Fault.LONG_LENGTH),
    (frame(b"x", 3), Fault.UNKNOWN_OPCODE),
    (frame(b"x", 0), Fault.FRAGMENT_ORDER),
    (frame(b"x", 9, final=False), Fault.CONTROL_FRAGMENT),
    (frame(b"x" * 126, 9), Fault.CONTROL_SIZE),
    (frame(b"\x03\xe8\xff", 8), Fault.CLOSE_TEXT),
    (frame(b"\x03\xed", 8), Fault.CLOSE_CODE),
    (frame(b"x", final=False) + frame(b"", 8), Fault.CLOSE_INSIDE_MESSAGE),
]


@pytest.mark.parametrize(("wire", "fault"), REFUSED)
def test_refused_input(run: Run, wire: bytes, fault: Fault) -> None:
    """The client is told the reason, and TCP ends right after that."""

    async def main() -> None:
        limits = ServerLimits(max_message_bytes=1500, close_timeout_s=20)
        async with running(limits=limits) as server:
            reader, writer, recorded = await raw_websocket(server)
            writer.write(frame(b"good") + wire + frame(b"never seen"))
            assert await read_close(reader) == (fault.code, fault.text)
            writer.write(frame(close_payload(fault.code, ""), 8))
            async with asyncio.timeout(5):
                assert await reader.read() == b""
                writer.close()
                await recorded.ended.wait()
            assert recorded.messages == [b"good"]
            assert recorded.ends == [(fault.code, fault.refusal)]

    run(main())


def test_every_fault_is_among_the_refused_input() -> None:
    seen = {fault for _, fault in REFUSED}
    # Tested in test_frame_budget and test_frames.
    assert set(Fault) - seen == {Fault.TOO_MUCH_INCOMPLETE, Fault.MESSAGE_TEXT}


def test_ping_is_answered_and_so_are_many(run: Run) -> None:
    async def main() -> None:
        async with running() as server:
            reader, writer, _ = await raw_websocket(server)
            writer.write(frame(b"1", 9) + frame(b"2", 9) + frame(b"unasked", 10))
            assert await reader.readexactly(6) == b"\x8a\x011\x8a\x012"
            writer.close()

    run(main())


def test_unix_socket(run: Run, tmp_path: Any) -> None:
    async def main() -> None:
        async with running(path=str(tmp_path / "s")) as server:
            reader, writer, recorded = await raw_websocket(server)
            assert recorded.socket.remote == "unix"
            writer.write(frame(b"hello"))
            assert await reader.readexactly(7) == b"\x82\x05hello"
            assert recorded.socket.acknowledged() == recorded.socket.written
            writer.transport.abort()
            await recorded.ended.wait()

    run(main())


def test_options_of_the_connection(run: Run) -> None:
    async def main() -> None:
        async with running() as server:
            _, writer, recorded = await raw_websocket(server)
            handle = recorded.socket._transport.get_extra_info("socket")  # type: ignore[attr-defined]
            assert handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert recorded.socket.remote.startswith("127.0.0.1:")
            writer.close()

    run(main())


def test_a_failing_receiver_costs_its_own_connection_only(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running() as server:
            reader, writer, recorded = await raw_websocket(server)

            def fail(messages: list[bytes]) -> None:
                raise RuntimeError("on purpose")

            recorded.messages_received = fail  # type: ignore[method-assign]
            writer.write(frame(b"x"))
            await recorded.ended.wait()
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            async with connect(server.url) as other:
                await other.send(b"still here")
                assert await other.recv() == b"still here"
            assert [str(each["exception"]) for each in server.failures] == ["on purpose"]
            server.failures.clear()

    run(main())


def test_compression_is_not_offered(run: Run) -> None:
    async def main() -> None:
        async with running() as server:
            async with connect(server.url, compression="deflate") as client:
                assert client.response is not None
                assert "Sec-WebSocket-Extensions" not in client.response.headers
                await client.send(b"plain")
                assert await client.recv() == b"plain"
            with pytest.raises(ConnectionClosed):
                await client.recv()

    run(main())


def test_many_connections_at_once(run: Run) -> None:
    async def main() -> None:
        async def one(server: Running, number: int) -> None:
            async with connect(server.url) as client:
                for count in range(20):
                    message = b"%d:%d" % (number, count)
                    await client.send(message)
                    assert await client.recv() == message

        async with running() as server:
            await asyncio.gather(*(one(server, number) for number in range(50)))

    run(main())
