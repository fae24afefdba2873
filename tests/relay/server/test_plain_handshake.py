"""Which handshakes are answered without ASGI, and how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from relay.server.limits import ServerLimits
from relay.server.plain_handshake import Plain, PlainHandshake, read
from tests.relay.server.running import Recorded, frame, running

Run = Callable[[Any], None]
PLAIN = (
    b"GET /?aaa.bbb.c-c_ HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Version: 13\r\nUser-Agent: some client/1.0 \r\n\r\n"
)
OTHERS = [
    PLAIN.replace(b"GET /", b"GET /x"),
    PLAIN.replace(b"GET ", b"HEAD "),
    PLAIN.replace(b"?aaa.bbb.c-c_", b""),
    PLAIN.replace(b"aaa", b"a%41a"),
    PLAIN.replace(b"aaa", b"a#a"),
    PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
    PLAIN.replace(b"websocket", b"h2c"),
    PLAIN.replace(b"Connection: Upgrade", b"Connection: keep-alive, Upgrade"),
    PLAIN.replace(b"Key: dGhl", b"Key: dGh"),
    PLAIN.replace(b"Version: 13", b"Version: 8"),
    PLAIN.replace(b"Host", b"X-Forwarded-For: 9.9.9.9\r\nHost"),
    PLAIN.replace(b"Host", b"x-forwarded-PROTO: https\r\nHost"),
    PLAIN.replace(b"Host", b"Content-Length: 0\r\nHost"),
    PLAIN.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"),
    PLAIN.replace(b"Host", b"Sec-WebSocket-Protocol: mux\r\nHost"),
    PLAIN.replace(b"Host", b"Host: elsewhere\r\nHost"),
    PLAIN.replace(b"Host", b"Host : elsewhere\r\nX"),
    PLAIN.replace(b"Host: localhost", b"Host: a\r\n folded: b"),
    PLAIN.replace(b"localhost", b"local\x00host"),
    PLAIN.replace(b"localhost\r", b"localhost"),
    PLAIN[:-2],
    PLAIN + b"\x82",
    b"\r\n" + PLAIN,
]


class Taker:
    """A handler that accepts handshakes, immediately unless `at_once` is False."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.taken: asyncio.Queue[PlainHandshake] = asyncio.Queue()
        self.receivers: list[Recorded] = []

    def __call__(self, handshake: PlainHandshake) -> None:
        self.taken.put_nowait(handshake)
        if self.at_once:
            self.accept(handshake)

    def accept(self, handshake: PlainHandshake) -> None:
        self.receivers.append(Recorded(handshake.socket, {}, echo=True))
        handshake.accept()
        handshake.socket.start(self.receivers[-1])


def test_what_a_handshake_says() -> None:
    query, key = b"aaa.bbb.c-c_", b"dGhlIHNhbXBsZSBub25jZQ=="
    assert read(PLAIN) == Plain(query, key, "some client/1.0")
    lower = PLAIN.replace(b"Connection: Upgrade", b"CONNECTION:upgrade")
    more = lower.replace(b"Host", b"Origin: null\r\nSec-WebSocket-Extensions: deflate\r\nHost")
    assert read(more.replace(b"User-Agent", b"User-Agents")) == Plain(query, key, "")


@pytest.mark.parametrize("data", OTHERS)
def test_others_take_the_usual_way(data: bytes) -> None:
    assert data != PLAIN
    assert read(data) is None


def test_a_handshake_is_accepted_and_messages_follow(run: Run) -> None:
    async def main() -> None:
        taker = Taker()
        async with running(take_handshake=taker) as server:
            reader, writer = await server.open()
            writer.write(PLAIN)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101 ")
            assert b"\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in head
            handshake = await taker.taken.get()
            assert (handshake.query, handshake.address) == (b"aaa.bbb.c-c_", "127.0.0.1")
            port = writer.get_extra_info("sockname")[1]
            assert handshake.socket.remote == f"127.0.0.1:{port}"
            writer.write(frame(b"hello"))
            assert await reader.readexactly(7) == b"\x82\x05hello"
            assert handshake.socket.written == len(head) + 7
            while not handshake.socket.drained():
                await asyncio.sleep(0)
            writer.close()
            await taker.receivers[0].ended.wait()

    run(main())


@pytest.mark.parametrize(
    "data",
    [PLAIN.replace(b"GET /", b"GET /x"), PLAIN.replace(b"Upgrade\r", b"keep-alive, Upgrade\r")],
)
def test_an_application_gets_the_others(run: Run, data: bytes) -> None:
    async def main() -> None:
        taker = Taker()
        async with running(take_handshake=taker) as server:
            reader, writer = await server.open()
            writer.write(data)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            await server.app.connections.get()
            assert taker.taken.empty()
            writer.transport.abort()

    run(main())


def test_pieces_larger_ones_and_other_places_go_by_asgi(run: Run) -> None:
    async def main() -> None:
        taker = Taker()
        async with running(take_handshake=taker, limits=ServerLimits()) as server:
            reader, writer = await server.open()
            for piece in (PLAIN[:50], PLAIN[50:]):
                writer.write(piece)
                await asyncio.sleep(0.02)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            writer.transport.abort()
        async with running(take_handshake=taker, limits=ServerLimits(max_head_bytes=99)) as server:
            reader, writer = await server.open()
            writer.write(PLAIN)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 431 ")
            writer.transport.abort()
        async with running(take_handshake=taker, elsewhere=True) as server:
            reader, writer = await server.open()
            writer.write(PLAIN)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            writer.transport.abort()
        assert taker.taken.empty()

    run(main())


def test_a_refusal_is_an_answer_of_http(run: Run) -> None:
    async def main() -> None:
        taker = Taker(at_once=False)
        async with running(take_handshake=taker) as server:
            reader, writer = await server.open()
            writer.write(PLAIN)
            (await taker.taken.get()).refuse(401, "who are you")
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
            assert answer.endswith(b"\r\n\r\nwho are you")

    run(main())


def test_a_client_that_leaves_before_the_answer(run: Run) -> None:
    async def main() -> None:
        taker = Taker(at_once=False)
        async with running(take_handshake=taker) as server:
            _, writer = await server.open()
            writer.write(PLAIN)
            handshake = await taker.taken.get()
            writer.transport.abort()
            while not handshake.socket.over:
                await asyncio.sleep(0.001)
            handshake.refuse(401, "nobody reads it")

    run(main())


def test_a_connection_that_says_nothing_is_ended(run: Run) -> None:
    async def main() -> None:
        limits = ServerLimits(handshake_timeout_s=0.05)
        async with running(take_handshake=Taker(), limits=limits) as server:
            reader, _ = await server.open()
            assert await reader.read() == b""
            assert limits.refused == {"handshake_timeout": 1}

    run(main())
