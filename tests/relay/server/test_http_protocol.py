"""The listener before a websocket begins: bounds of time and size, and HTTP answers."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.server.limits import MAX_PIPELINED, ServerLimits
from relay.server.socket import EXTENSION
from tests.relay.server.running import HANDSHAKE, EchoApp, Running, running

Run = Callable[[Any], None]
PLAIN = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
BY_ASGI = b"hello\r\n0\r\n\r\n"
UPGRADE = b"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
VERSION = b"Sec-WebSocket-Version: 13\r\n"


async def ask(server: Running, request: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection."""
    reader, writer = await server.open()
    writer.write(request)
    return await reader.read()


def test_half_open_connections_end_in_time(run: Run) -> None:
    async def main() -> None:
        limits = ServerLimits(handshake_timeout_s=0.3)
        async with running(limits=limits) as server:
            silent, _ = await server.open()
            slow, slow_writer = await server.open()
            slow_writer.write(b"GET / HTTP/1.1\r\nHost:")
            started = asyncio.get_running_loop().time()
            assert await silent.read() == b""
            assert await slow.read() == b""
            assert 0.2 < asyncio.get_running_loop().time() - started < 2
            assert limits.refused == {"handshake_timeout": 2}
            assert len(limits.handshakes) == 0

    run(main())


def test_connections_that_send_nothing_end_without_an_error(run: Run) -> None:
    async def main() -> None:
        limits = ServerLimits(handshake_timeout_s=30)
        async with running(limits=limits) as server:
            _, writer = await server.open()
            while not len(limits.handshakes):
                await asyncio.sleep(0)
            writer.close()
            while len(limits.handshakes):
                await asyncio.sleep(0)

    run(main())


def test_a_second_request_has_the_same_time(run: Run) -> None:
    async def main() -> None:
        limits = ServerLimits(handshake_timeout_s=0.3)
        async with running(limits=limits) as server:
            reader, writer = await server.open()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"hello" in await reader.readuntil(b"hello\r\n0\r\n\r\n")
            assert len(limits.handshakes) == 0
            writer.write(b"GET / HT")
            assert await reader.read() == b""
            assert limits.refused == {"handshake_timeout": 1}

    run(main())


def test_websocket_and_answered_request_are_not_timed_out(run: Run) -> None:
    async def main() -> None:
        limits = ServerLimits(handshake_timeout_s=0.1)
        async with running(limits=limits) as server:
            reader, writer = await server.open()
            writer.write(HANDSHAKE)
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.3)
            recorded = await server.app.connections.get()
            recorded.socket.send_messages([b"alive"])
            assert await reader.readexactly(7) == b"\x82\x05alive"
            assert limits.refused == {}

    run(main())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /?" + b"t" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET /?" + b"t" * 3_000_000, 414),
        (b"GET / HTTP/1.1\r\nX: " + b"h" * 20_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nX: " + b"h" * 3_000_000, 431),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + UPGRADE + b"a: b\r\n" * 20_000 + b"\r\n", 431),
        (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
    ],
)
def test_bombs_are_answered_and_ended(run: Run, request_bytes: bytes, status: int) -> None:
    async def main() -> None:
        limits = ServerLimits()
        async with running(limits=limits) as server:
            answer = await ask(server, request_bytes)
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert sum(limits.refused.values()) == 1

    run(main())


def test_a_head_that_drips_is_bounded_all_the_same(run: Run) -> None:
    async def main() -> None:
        async with running(limits=ServerLimits(max_head_bytes=1000)) as server:
            reader, writer = await server.open()
            writer.write(b"GET / HTTP/1.1\r\nX: ")
            for _ in range(200):
                writer.write(b"h" * 10)
                await asyncio.sleep(0.001)
            assert (await reader.read()).startswith(b"HTTP/1.1 431 ")

    run(main())


def test_a_large_body_is_not_a_large_head(run: Run) -> None:
    async def main() -> None:
        async with running(limits=ServerLimits(max_head_bytes=500)) as server:
            answer = await ask(
                server,
                b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5000\r\n\r\n"
                + b"b" * 5000,
            )
            assert answer.startswith(b"HTTP/1.1 200 ")

    run(main())


def test_a_body_that_nobody_wants_ends_in_time(run: Run) -> None:
    """A slow body does not keep the connection open after its request was answered."""
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n"

    async def main() -> None:
        limits = ServerLimits(handshake_timeout_s=0.3)
        async with running(limits=limits) as server:
            reader, writer = await server.open()
            for _ in range(2):
                writer.write(head)
                await reader.readuntil(b"hello\r\n0\r\n\r\n")
                writer.write(bytes(5000))  # the body arrives in time
            writer.write(head)
            await reader.readuntil(b"hello\r\n0\r\n\r\n")
            ended = asyncio.create_task(reader.read())
            while not (await asyncio.wait({ended}, timeout=0.02))[0]:
                writer.write(b"b")
                assert len(limits.handshakes) <= 1
            assert len(limits.handshakes) == 0

    run(main())


def test_empty_lines_before_a_request_have_its_time(run: Run) -> None:
    async def main() -> None:
        limits = ServerLimits(handshake_timeout_s=0.3)
        async with running(limits=limits) as server:
            reader, writer = await server.open()
            writer.write(PLAIN)
            await reader.readuntil(BY_ASGI)
            ended = asyncio.create_task(reader.read())
            while not (await asyncio.wait({ended}, timeout=0.02))[0]:
                writer.write(b"\r\n")
                assert len(limits.handshakes) <= 1
            assert limits.refused == {"handshake_timeout": 1}
            assert len(limits.handshakes) == 0

    run(main())


def test_a_head_behind_a_large_body_has_bounds_of_its_own(run: Run) -> None:
    body = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n" + bytes(5000)

    async def main() -> None:
        limits = ServerLimits(max_head_bytes=1000, handshake_timeout_s=0.3)
        async with running(limits=limits) as server:
            reader, writer = await server.open()
            for _ in range(2):
                writer.write(body + PLAIN[:10])
                await reader.readuntil(BY_ASGI)
                writer.write(PLAIN[10:])
                await reader.readuntil(BY_ASGI)
            writer.write(body + PLAIN[:10])
            await reader.readuntil(BY_ASGI)
            assert await reader.read() == b""
            assert limits.refused == {"handshake_timeout": 1}
            reader, writer = await server.open()
            writer.write(body + PLAIN[:10])
            await reader.readuntil(BY_ASGI)
            writer.write(b"h" * 1001)
            assert (await reader.read()).startswith(b"HTTP/1.1 4")

    run(main())


class Held(EchoApp):
    """An application that answers plain requests with `size` bytes once `go_on` is set."""

    def __init__(self, size: int = 5) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self.size = size
        self.ended = 0

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        self.asked.set()
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(self.size), "more_body": True})
        await send({"type": "http.response.body", "body": b"hello"})
        self.ended += 1


@pytest.mark.parametrize("count", [MAX_PIPELINED + 1, 5000])
def test_so_many_pipelined_requests_are_answered(run: Run, count: int) -> None:
    async def main() -> None:
        app = Held()
        async with running(app) as server:
            reader, writer = await server.open()
            writer.write(PLAIN * count)
            await app.asked.wait()
            app.go_on.set()
            for _ in range(MAX_PIPELINED):
                assert b"connection: close" not in await reader.readuntil(BY_ASGI)
            more = count > MAX_PIPELINED + 1
            assert (b"connection: close" in await reader.readuntil(BY_ASGI)) == more
            if more:
                assert await reader.read() == b""
            assert server.limits.refused == ({"pipelined": 1} if more else {})
            assert app.ended == MAX_PIPELINED + 1

    run(main())


@pytest.mark.parametrize("rest", [b"\x00 nonsense\r\n\r\n", HANDSHAKE], ids=["nonsense", "upgrade"])
def test_nothing_passes_an_answer_that_is_waited_for(
    run: Run, rest: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        app = Held()
        async with running(app) as server:
            reader, writer = await server.open()
            writer.write(PLAIN * 2 + rest)
            await app.asked.wait()
            app.go_on.set()
            assert b"connection: close" not in await reader.readuntil(BY_ASGI)
            assert b"connection: close" in await reader.readuntil(BY_ASGI)
            assert await reader.read() == b""
            assert sum(server.limits.refused.values()) == 1

    run(main())
    assert not caplog.records


def test_a_broken_body_ends_its_request(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        app = Held()
        async with running(app) as server:
            reader, writer = await server.open()
            writer.write(
                b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
            )
            await app.asked.wait()
            writer.write(b"nonsense\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            app.go_on.set()
            while not app.ended:
                await asyncio.sleep(0)
            writer.close()

    run(main())
    assert not caplog.records


def test_an_answer_that_nobody_reads_ends_in_time(run: Run) -> None:
    async def main() -> None:
        app = Held(50_000_000)
        app.go_on.set()
        limits = ServerLimits(answer_timeout_s=0.3)
        async with running(app, limits) as server:
            _, writer = await server.open()
            writer.transport.pause_reading()
            writer.write(PLAIN * 3)
            while not limits.refused:
                await asyncio.sleep(0.01)
            assert limits.refused == {"back_pressure": 1}
            assert len(limits.unread) == 0

    run(main())


@pytest.mark.parametrize("keeps", [True, False], ids=["kept alive", "closed"])
def test_the_rest_of_an_answer_keeps_no_connection(run: Run, tmp_path: Path, keeps: bool) -> None:
    """The connection ends in time although the client does not read the rest of the answer.

    So little waits that the application was not told to pause: the kernel has most of the answer.
    """
    request = PLAIN if keeps else PLAIN[:-2] + b"Connection: close\r\n\r\n"

    async def main() -> None:
        app = Held(20_000)
        app.go_on.set()
        limits = ServerLimits(answer_timeout_s=0.3, keep_alive_s=0.3)
        options = {"path": str(tmp_path / "s"), "timeout_keep_alive": 0.3}
        async with running(app, limits, **options) as server:
            for count in range(15):
                client = socket.socket(socket.AF_UNIX)
                client.connect(server.address)
                client.sendall(PLAIN * count + request)
                ended = select.poll()
                ended.register(client, select.POLLRDHUP)
                while not ended.poll(0):
                    await asyncio.sleep(0.01)
                client.close()

    run(main())


def test_an_answer_that_is_read_slowly_comes_whole(run: Run) -> None:
    async def main() -> None:
        app = Held(20_000_000)
        app.go_on.set()
        limits = ServerLimits(answer_timeout_s=0.3)
        async with running(app, limits) as server:
            reader, writer = await server.open()
            writer.write(PLAIN)
            received = 0
            while received < app.size:
                received += len(await reader.read(1 << 20))
                await asyncio.sleep(0.005)
            assert limits.refused == {}
            assert len(limits.unread) == 0

    run(main())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (UPGRADE + VERSION, 400),
        (UPGRADE + VERSION + b"Sec-WebSocket-Key: c2hvcnQ=\r\n", 400),
        (UPGRADE + VERSION + b"Sec-WebSocket-Key: " + b"!" * 24 + b"\r\n", 400),
        (UPGRADE + VERSION + KEY + KEY, 400),
        (UPGRADE + KEY, 426),
        (UPGRADE + KEY + b"Sec-WebSocket-Version: 8\r\n", 426),
        (b"Upgrade: websocket\r\n" + KEY + VERSION, 200),  # no Connection: Upgrade: plain HTTP
    ],
)
def test_bad_handshakes(run: Run, head: bytes, status: int) -> None:
    async def main() -> None:
        async with running() as server:
            reader, writer = await server.open()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n")
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            if status == 426:
                assert b"sec-websocket-version: 13\r\n" in answer

    run(main())


def test_a_post_is_no_handshake(run: Run) -> None:
    async def main() -> None:
        async with running() as server:
            answer = await ask(
                server, b"POST / HTTP/1.1\r\nHost: x\r\n" + UPGRADE + KEY + VERSION + b"\r\n"
            )
            assert answer.startswith(b"HTTP/1.1 400 ")

    run(main())


@pytest.mark.parametrize(
    ("target", "query", "told"),
    [(b"/", b"", None), (b"/?", b"", b""), (b"/a%20b?tok.en?x", b"tok.en?x", b"tok.en?x")],
)
def test_the_applications_answer_and_the_query(
    run: Run, target: bytes, query: bytes, told: bytes | None
) -> None:
    async def main() -> None:
        seen: list[Any] = []
        app = EchoApp()

        async def refuse(scope: Any, receive: Any, send: Any) -> None:
            seen.extend((scope["query_string"], scope["extensions"][EXTENSION]["query"]))
            await send(
                {"type": "websocket.http.response.start", "status": 401, "headers": [(b"a", b"b")]}
            )
            await send({"type": "websocket.http.response.body", "body": b"invalid jwt: expired"})

        app.verdict = refuse
        async with running(app) as server:
            answer = await ask(server, HANDSHAKE.replace(b"/x?secret-token", target))
            assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\na: b\r\n")
            assert answer.endswith(b"\r\n\r\ninvalid jwt: expired")
            assert seen == [query, told]

    run(main())


def test_close_before_accept_is_403_and_no_answer_500(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        app = EchoApp()

        async def close(scope: Any, receive: Any, send: Any) -> None:
            await send({"type": "websocket.close", "code": 4000})

        async def nothing(scope: Any, receive: Any, send: Any) -> None:
            pass

        async with running(app) as server:
            app.verdict = close
            assert (await ask(server, HANDSHAKE)).startswith(b"HTTP/1.1 403 ")
            app.verdict = nothing
            assert (await ask(server, HANDSHAKE)).startswith(b"HTTP/1.1 500 ")

    run(main())


def test_a_client_that_leaves_while_it_is_judged(run: Run) -> None:
    async def main() -> None:
        left = asyncio.Event()
        app = EchoApp()

        async def judge(scope: Any, receive: Any, send: Any) -> None:
            assert (await receive())["type"] == "websocket.disconnect"
            left.set()
            await send({"type": "websocket.accept"})
            raise AssertionError("the client is gone")

        app.verdict = judge
        async with running(app) as server:
            _, writer = await server.open()
            writer.write(HANDSHAKE)
            writer.transport.abort()
            await left.wait()

    run(main())


def test_ten_thousand_half_open_handshakes_cost_one_timer() -> None:
    class Loop:
        """A loop that counts timers, with a clock that the test sets."""

        now = 0.0

        def __init__(self) -> None:
            self.timers: list[tuple[float, Any, Any]] = []

        def time(self) -> float:
            return self.now

        def call_later(self, delay: float, callback: Any, argument: Any) -> Any:
            self.timers.append((self.now + delay, callback, argument))
            return object()

        def call_at(self, when: float, callback: Any, argument: Any) -> Any:
            return self.call_later(when - self.now, callback, argument)

    loop: Any = Loop()
    limits = ServerLimits(handshake_timeout_s=10)
    ended: list[int] = []
    for number in range(10_000):
        loop.now = number / 1000
        limits.handshakes.add(number, lambda n=number: ended.append(n), loop)
    assert len(loop.timers) == 1
    limits.handshakes.remove(0)
    when, callback, argument = loop.timers.pop()
    loop.now = when + 5.0
    callback(argument)
    assert ended == list(range(1, 5001))
    assert len(loop.timers) == 1
