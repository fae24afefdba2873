"""Links against fake relays that refuse, stay silent, stall and return."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import formatdate
from http import HTTPStatus

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.utils import accept_key

from peer.connection import MAX_FRAGMENTS
from peer.link import Link, check_url
from peer.links import Links
from proto.limits.backoff import Backoff
from tests.support.stream_server import stream_server
from tests.support.waiting import eventually

QUICK = Backoff(first_s=0.01, longest_s=0.02)
Handler = Callable[[ServerConnection], Awaitable[None]]


class FakeRelay:
    """A websocket server; `handler` serves each connection."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port: int = next(iter(server.sockets)).getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def fake_relay(handler: Handler, **options: object) -> AsyncIterator[FakeRelay]:
    async with serve(handler, "127.0.0.1", 0, ping_interval=None, **options) as server:  # type: ignore[arg-type]
        yield FakeRelay(server)


@contextlib.asynccontextmanager
async def linked(url: str, **options: object) -> AsyncIterator[tuple[Link, list[bytes]]]:
    received: list[bytes] = []
    tokens = itertools.count(1)
    options = {"backoff": QUICK, **options}
    link = Link(url, lambda: f"token{next(tokens)}", received.append, **options)  # type: ignore[arg-type]
    link.start()
    try:
        yield link, received
    finally:
        await link.aclose()


def accepted(head: bytes) -> bytes:
    """Return the answer to an upgrade request."""
    lines = head.split(b"\r\n")
    key = next(line for line in lines if line.lower().startswith(b"sec-websocket-key"))
    accept = accept_key(key.split(b":")[1].strip().decode())
    return (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept}\r\n\r\n"
    ).encode()


async def send_back(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def test_messages_of_every_size_and_form() -> None:
    async def handler(connection: ServerConnection) -> None:
        await connection.send("text is not for us")
        await connection.send([b"in ", b"two ", b"pieces"])
        await send_back(connection)

    sizes = (0, 1, 125, 126, 65_535, 65_536, 300_000, 16 * 1024 * 1024 - 1)
    sent = [os.urandom(size) for size in sizes]
    async with fake_relay(handler, max_size=None) as relay, linked(relay.url) as (link, received):
        for data in sent:
            while not link.try_send(data):
                assert await link.writable(10)
        await eventually(lambda: len(received) == len(sent) + 1)
        assert received == [b"in two pieces", *sent]


async def test_messages_of_one_turn_are_one_write() -> None:
    reads: list[int] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepted(await reader.readuntil(b"\r\n\r\n")))
        while data := await reader.read(1 << 20):
            reads.append(len(data))

    async with (
        stream_server(handler) as server,
        linked(f"ws://127.0.0.1:{server.port}") as (link, _),
    ):
        assert await link.writable(10)
        for _ in range(100):
            assert link.try_send(bytes(200))
        await eventually(lambda: sum(reads) == 100 * 208)
        assert len(reads) == 1


async def test_a_new_token_for_each_attempt_and_the_relays_reason() -> None:
    seen: list[str] = []

    def refuse(connection: ServerConnection, request: Request) -> Response | None:
        seen.append(request.path)
        if len(seen) < 3:
            return connection.respond(HTTPStatus.UNAUTHORIZED, "invalid jwt: expired")
        return None

    async with (
        fake_relay(send_back, process_request=refuse) as relay,
        linked(relay.url) as (link, _),
    ):
        await eventually(lambda: len(seen) >= 1 and link.last_error)
        assert link.last_error == "refused with status 401: invalid jwt: expired"
        assert await link.writable(10)
        assert seen == ["/?token1", "/?token2", "/?token3"]
        assert link.sessions == 1


@pytest.mark.parametrize(("off_s", "side"), [(-602, "behind"), (602, "ahead of"), (20, "")])
async def test_a_wrong_clock_is_noticed(off_s: int, side: str) -> None:
    """A wrong clock is noticed at a relay that refuses the token, and at one that accepts it."""
    takes = False

    def answer(connection: ServerConnection, request: Request) -> Response | None:
        return None if takes else connection.respond(HTTPStatus.UNAUTHORIZED, "expired")

    def tell_time(connection: ServerConnection, request: Request, response: Response) -> None:
        del response.headers["Date"]
        response.headers["Date"] = formatdate(time.time() - off_s, usegmt=True)

    async with (
        fake_relay(send_back, process_request=answer, process_response=tell_time) as relay,
        linked(relay.url) as (link, _),
    ):
        await eventually(lambda: link.last_error)
        takes = True
        assert await link.writable(10)
        for text in (link.last_error.removeprefix("refused with status 401: expired"), link.clock):
            found = re.fullmatch(r"(?:; )?this machine's clock is (\d+) s (.*) the relay's", text)
            assert (found[2] if found else "") == side
            assert not found or abs(int(found[1]) - abs(off_s)) <= 5


async def test_a_relay_without_a_date() -> None:
    def forget(connection: ServerConnection, request: Request, response: Response) -> None:
        del response.headers["Date"]

    async with (
        fake_relay(send_back, process_response=forget) as relay,
        linked(relay.url) as (link, _),
    ):
        assert await link.writable(10)
        assert link.clock == ""


async def test_a_relay_that_answers_a_closed_link_has_no_session() -> None:
    """A relay that answers a closed link gets no session, whose messages would be lost."""
    asked, answer, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hesitate(connection: ServerConnection, request: Request) -> None:
        asked.set()
        await answer.wait()

    async def wait_closed(connection: ServerConnection) -> None:
        await connection.wait_closed()
        ended.set()

    async with fake_relay(wait_closed, process_request=hesitate) as relay:
        async with linked(relay.url):
            await asked.wait()
        answer.set()
        async with asyncio.timeout(5):
            await ended.wait()


async def test_a_refusal_without_a_text_is_named() -> None:
    def refuse(connection: ServerConnection, request: Request) -> Response | None:
        return connection.respond(HTTPStatus.FOUND, "")

    async with (
        fake_relay(send_back, process_request=refuse) as relay,
        linked(relay.url) as (link, _),
    ):
        await eventually(lambda: link.last_error)
        assert link.last_error == "refused with status 302: Found"


async def test_it_connects_again_and_tells_of_it() -> None:
    told: list[tuple[bool, int]] = []

    async def close(connection: ServerConnection) -> None:
        async for _ in connection:
            await connection.close(1012, "restart")

    async with (
        fake_relay(close) as relay,
        linked(relay.url, on_change=lambda link: told.append((link.connected, link.sessions))) as (
            link,
            _,
        ),
    ):
        assert await link.writable(10)
        link.try_send(b"close, please")
        await eventually(lambda: link.sessions == 2)
        assert told == [(True, 1), (False, 1), (True, 2)]
        assert link.last_error == "closed by the relay: 1012 restart"


async def test_a_silent_relay_is_asked_and_given_up() -> None:
    silent = asyncio.Event()

    async def deaf(connection: ServerConnection) -> None:
        connection.transport.pause_reading()  # so that pings are not answered
        silent.set()
        await connection.wait_closed()

    async with (
        fake_relay(deaf, close_timeout=0.1) as relay,
        linked(relay.url, ping_after_s=0.05, give_up_after_s=0.2) as (link, _),
    ):
        await silent.wait()
        await eventually(lambda: link.sessions == 2)
        assert link.last_error == "nothing was read for too long"


SLOW_BYTES = 600_000
CHUNK_BYTES = 20_000


@pytest.mark.parametrize("way", ["down", "up"])
async def test_a_large_message_on_a_slow_line_is_no_silence(way: str) -> None:
    """A slow large message does not count as silence, though no frame completes for that long."""
    taken: list[int] = []

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepted(await reader.readuntil(b"\r\n\r\n")))
        frame = b"\x82\x7f" + SLOW_BYTES.to_bytes(8, "big") + bytes(SLOW_BYTES)
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(frame) if way == "down" else 0, CHUNK_BYTES):
                writer.write(frame[at : at + CHUNK_BYTES])
                await asyncio.sleep(0.05)
            while data := await reader.read(CHUNK_BYTES):
                taken.append(len(data))
                await asyncio.sleep(0.05)

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK_BYTES)
    async with (
        stream_server(trickle, sock=listener, limit=CHUNK_BYTES) as server,
        linked(f"ws://127.0.0.1:{server.port}", ping_after_s=0.2, give_up_after_s=0.5) as (
            link,
            received,
        ),
    ):
        assert await link.writable(10)
        if way == "up":
            assert link.try_send(bytes(SLOW_BYTES))
            await eventually(lambda: sum(taken) > SLOW_BYTES)
        else:
            await eventually(lambda: received)
        assert link.sessions == 1
        # Then it is silent: pings are not answered.
        await eventually(lambda: link.sessions == 2)


async def test_a_quiet_relay_that_answers_pings_is_kept() -> None:
    pinged: list[bytes] = []

    async def quiet(connection: ServerConnection) -> None:
        received = connection.protocol.recv_frame

        def watch(frame: object) -> None:
            if frame.opcode.name == "PING":  # type: ignore[attr-defined]
                pinged.append(b"")
            received(frame)  # type: ignore[arg-type]

        connection.protocol.recv_frame = watch  # type: ignore[method-assign]
        await connection.wait_closed()

    async with (
        fake_relay(quiet) as relay,
        linked(relay.url, ping_after_s=0.05, give_up_after_s=0.5) as (link, _),
    ):
        await eventually(lambda: len(pinged) >= 12)
        assert link.sessions == 1


@contextlib.asynccontextmanager
async def raw_relay(said: bytes) -> AsyncIterator[tuple[str, asyncio.Queue[bytes]]]:
    """Send bytes after the upgrade; yield the URL and a queue of the answers."""
    answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepted(await reader.readuntil(b"\r\n\r\n")) + said)
        with contextlib.suppress(ConnectionError):
            while answer := await reader.read(1 << 20):
                answers.put_nowait(answer)

    async with stream_server(handler) as server:
        yield f"ws://127.0.0.1:{server.port}", answers


async def test_a_flood_of_pings_gets_few_pongs() -> None:
    """Pings that arrive together get one pong: for the newest, which answers all before it."""
    count = 20_000
    pings = b"".join(b"\x89\x08%08d" % number for number in range(count))
    async with raw_relay(pings) as (url, answers), linked(url):
        got = b""
        last = b"%08d" % (count - 1)
        pongs: list[bytes] = []
        while last not in pongs:
            got += await asyncio.wait_for(answers.get(), 10)
            pongs = [_unmasked(got[at : at + 14]) for at in range(0, len(got) - 13, 14)]
        assert len(pongs) < count / 100


def _unmasked(pong: bytes) -> bytes:
    assert pong[:2] == b"\x8a\x88"
    mask = pong[2:6]
    return bytes(each ^ mask[index % 4] for index, each in enumerate(pong[6:]))


async def test_a_message_in_endless_fragments_ends_the_link() -> None:
    fragments = b"\x02\x01x" + b"\x00\x00" * (MAX_FRAGMENTS + 1)
    async with raw_relay(fragments) as (url, _), linked(url) as (link, received):
        await eventually(lambda: link.last_error)
        assert link.last_error == f"a message of more than {MAX_FRAGMENTS} fragments"
        assert not received


async def test_many_text_messages_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    said = b"\x81\x02no" * 1000 + b"\x82\x03end"
    async with raw_relay(said) as (url, _), linked(url) as (_, received):
        await eventually(lambda: received)
    assert caplog.text.count("text message") == 1


async def test_reading_can_be_paused() -> None:
    async with fake_relay(send_back) as relay, linked(relay.url) as (link, received):
        assert await link.writable(10)
        link.pause()
        link.try_send(b"1")
        # An answer would arrive long before another connection is made and used.
        async with linked(relay.url) as (other, others):
            assert await other.writable(10)
            other.try_send(b"2")
            await eventually(lambda: others == [b"2"])
        assert received == []
        link.resume()
        await eventually(lambda: received == [b"1"])


async def test_what_a_relay_has_sent_is_read_before_the_end() -> None:
    """What a relay has sent is read before the end.

    The kernel has acknowledged it, so the relay has removed it.
    """
    count, paused, written = 500, asyncio.Event(), asyncio.Event()

    async def handler(connection: ServerConnection) -> None:
        await paused.wait()
        for number in range(count):
            await connection.send(b"%d" % number)
        written.set()
        await connection.wait_closed()

    async with fake_relay(handler) as relay, linked(relay.url) as (link, received):
        assert await link.writable(10)
        link.pause()
        paused.set()
        await written.wait()
        assert not received
        closing = asyncio.create_task(link.aclose())
        await asyncio.sleep(0)
        link.pause()  # as a full inbox requests
        await closing
        assert received == [b"%d" % number for number in range(count)]


async def test_a_relay_that_answers_no_close_frame_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peer.link.CLOSE_S", 0.1)
    ended = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(accepted(await reader.readuntil(b"\r\n\r\n")))
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 20):
                pass
        ended.set()

    async with (
        stream_server(handler) as server,
        linked(f"ws://127.0.0.1:{server.port}") as (link, _),
    ):
        assert await link.writable(10)
        async with asyncio.timeout(5):
            await link.aclose()
            await ended.wait()


async def test_a_busy_relay_is_left_after_half_a_second() -> None:
    arrived: list[bytes] = []
    release = asyncio.Event()

    async def stuck(connection: ServerConnection) -> None:
        connection.transport.pause_reading()
        await release.wait()

    async def take(connection: ServerConnection) -> None:
        async for message in connection:
            assert isinstance(message, bytes)
            arrived.append(message)

    async with (
        fake_relay(stuck, close_timeout=0.1) as first,
        fake_relay(take, max_size=None) as second,
    ):
        links = Links([first.url, second.url], lambda: "t", lambda data: None, backoff=QUICK)
        links.start()
        try:
            await eventually(lambda: all(link.connected for link in links.links))
            loop = asyncio.get_running_loop()
            # Full, and still full after a turn of the loop: the kernel's buffers are, too.
            while not links.links[0].busy_s:
                assert links.try_send(bytes(100_000)) is links.links[0]
                await asyncio.sleep(0)
            began = loop.time()
            # Not at once: messages to one twin should take one route.
            assert links.try_send(b"next") is None
            await eventually(lambda: links.try_send(b"next") is links.links[1])
            assert 0.3 < loop.time() - began < 5
            assert links.try_send(b"then") is links.links[1]
            await eventually(lambda: arrived[-1:] == [b"then"])
        finally:
            release.set()
            await links.aclose()


@pytest.mark.parametrize(
    "url", ["relay.example", "http://relay.example", "ws://", "ws://a?b", "ws://a:x", "ws://a#b"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError):
        check_url(url)


async def test_links_want_one_to_four_relays() -> None:
    twice = (
        ["ws://a"] * 2,
        ["ws://a", "ws://a/"],
        ["ws://a", "ws://A:80/x"],
        ["ws://a", "wss://a"],
    )
    for urls in ([], *twice, [f"ws://{number}" for number in range(5)]):
        with pytest.raises(ValueError, match="relay"):
            Links(urls, lambda: "t", lambda data: None)
