"""Which POSTs are answered without ASGI, and how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from relay.server.limits import ServerLimits
from relay.server.small_post import SmallPost
from tests.relay.server.running import running

Run = Callable[[Any], None]
HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"
WHOLE = HEAD + b"Content-Length: 4\r\n\r\nbody"
BY_ASGI = b"hello\r\n0\r\n\r\n"


class Taker:
    """A handler that takes every request, and answers at once or when the test calls `answer`."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.taken: asyncio.Queue[SmallPost] = asyncio.Queue()

    def __call__(self, post: SmallPost) -> bool:
        if self.at_once:
            self.answer(post)
        self.taken.put_nowait(post)
        return True

    def answer(self, post: SmallPost) -> None:
        post.answer(202, [(b"x-own", b"1")], b"<" + post.body + b">")


def test_a_whole_request_is_taken_and_the_connection_kept(run: Run) -> None:
    async def main() -> None:
        taker = Taker()
        async with running(take_post=taker) as server:
            reader, writer = await server.open()
            for _ in range(3):
                writer.write(WHOLE)
                head, body = (await reader.readuntil(b">")).split(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 202 Accepted\r\ndate: ")
                assert head.endswith(b"\r\nx-own: 1\r\ncontent-length: 6")
                assert body == b"<body>"
                post = taker.taken.get_nowait()
                assert (post.path, post.address) == (b"/", "127.0.0.1")
                assert post.headers == [(b"host", b"x"), (b"content-length", b"4")]

    run(main())


@pytest.mark.parametrize(
    "request_bytes",
    [
        WHOLE.replace(b"POST", b"PUT"),
        WHOLE.replace(b"POST /", b"POST /elsewhere"),
        WHOLE.replace(b"HTTP/1.1", b"HTTP/1.0"),
        WHOLE.replace(b"Host", b"Connection: close\r\nHost"),
        WHOLE.replace(b"Host", b"X-Forwarded-For: 9.9.9.9\r\nHost"),
        WHOLE.replace(b"Host", b"Expect: 100-continue\r\nHost"),
    ],
)
def test_others_go_by_asgi(run: Run, request_bytes: bytes) -> None:
    async def main() -> None:
        taker = Taker()
        async with running(take_post=taker) as server:
            reader, writer = await server.open()
            writer.write(request_bytes)
            assert b"hello" in await reader.readuntil(b"hello")
            assert taker.taken.empty()

    run(main())


def test_a_body_in_pieces_goes_by_asgi(run: Run) -> None:
    async def main() -> None:
        taker = Taker()
        async with running(take_post=taker) as server:
            reader, writer = await server.open()
            writer.write(WHOLE[:-2])
            assert b"200 OK" in await reader.readuntil(BY_ASGI)
            writer.write(WHOLE[-2:] + WHOLE)  # the rest of the first request, and a second one
            assert b"202" in await reader.readuntil(b"<body>")
            assert taker.taken.qsize() == 1

    run(main())


def test_what_is_not_taken_goes_by_asgi(run: Run) -> None:
    async def main() -> None:
        async with running(take_post=lambda post: False) as server:
            reader, writer = await server.open()
            for _ in range(2):
                writer.write(WHOLE)
                assert b"200 OK" in await reader.readuntil(BY_ASGI)

    run(main())


def test_pipelined_requests_are_answered_in_order(run: Run) -> None:
    async def main() -> None:
        taker = Taker(at_once=False)
        async with running(take_post=taker) as server:
            reader, writer = await server.open()
            writer.write(WHOLE + WHOLE)
            taker.answer(await taker.taken.get())
            assert b"202" in await reader.readuntil(b"<body>")
            assert b"200 OK" in await reader.readuntil(BY_ASGI)
            assert taker.taken.empty()

    run(main())


def test_an_idle_connection_is_closed_one_that_waits_for_its_answer_is_not(run: Run) -> None:
    async def main() -> None:
        taker = Taker(at_once=False)
        async with running(limits=ServerLimits(keep_alive_s=0.05), take_post=taker) as server:
            waiting, asker = await server.open()
            asker.write(WHOLE)
            taker.answer(await taker.taken.get())
            await waiting.readuntil(b"<body>")
            asker.write(WHOLE)
            unanswered = await taker.taken.get()
            idle, writer = await server.open()
            writer.write(WHOLE)
            taker.answer(await taker.taken.get())
            assert (await idle.read()).endswith(b"<body>")
            taker.answer(unanswered)
            assert (await waiting.read()).endswith(b"<body>")
            assert not len(server.limits.idle)

    run(main())


def test_answers_differ_in_what_they_say(run: Run) -> None:
    async def main() -> None:
        taker = Taker(at_once=False)
        async with running(take_post=taker) as server:
            reader, writer = await server.open()
            for status, headers, body in (
                (202, (), b""),
                (202, ((b"x-own", b"1"),), b""),
                (503, ((b"x-own", b"1"),), b"later"),
                (503, ((b"x-own", b"2"),), b"never"),
                (202, (), b""),
            ):
                writer.write(WHOLE)
                (await taker.taken.get()).answer(status, headers, body)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 %d " % status)
                lines = b"".join(b"\r\n%b: %b" % header for header in headers)
                assert head.endswith(
                    b"uvicorn%b\r\ncontent-length: %d\r\n\r\n" % (lines, len(body))
                )
                assert await reader.readexactly(len(body)) == body

    run(main())


def test_a_stop_waits_for_the_answer_and_closes(run: Run) -> None:
    async def main() -> None:
        taker = Taker(at_once=False)
        async with running(take_post=taker) as server:
            reader, writer = await server.open()
            writer.write(WHOLE)
            post = await taker.taken.get()
            protocol = post._protocol
            protocol.shutdown()
            taker.answer(post)
            answer = await reader.read()
            assert b"\r\nconnection: close\r\n" in answer and answer.endswith(b"<body>")

    run(main())


def test_an_answer_to_nobody(run: Run) -> None:
    async def main() -> None:
        taker = Taker(at_once=False)
        async with running(take_post=taker) as server:
            _, writer = await server.open()
            writer.write(WHOLE)
            post = await taker.taken.get()
            writer.transport.abort()
            while not post.disconnected:
                await asyncio.sleep(0)
            taker.answer(post)

    run(main())


def test_a_broken_body_is_answered_400(run: Run) -> None:
    async def main() -> None:
        taker = Taker()
        async with running(take_post=taker) as server:
            reader, writer = await server.open()
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\nzz\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            assert taker.taken.empty()

    run(main())
