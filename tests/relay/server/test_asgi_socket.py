"""The socket on plain ASGI: with uvicorn's own protocols, with daphne, and with a fake server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import uvicorn
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from relay.server.asgi_socket import AsgiSocket
from relay.server.socket import HIGH_WATER_BYTES
from tests.relay.server.plain_echo import Echo, PlainEchoApp

Run = Callable[[Any], None]


@contextlib.asynccontextmanager
async def plain_uvicorn(app: PlainEchoApp) -> AsyncIterator[str]:
    config = uvicorn.Config(
        app, ws="websockets-sansio", lifespan="off", log_config=None, timeout_graceful_shutdown=3
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"ws://127.0.0.1:{listener.getsockname()[1]}/"
    task = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0)
    try:
        yield url
    finally:
        server.should_exit = True
        await task


AS_THE_RELAY_RUNS_IT = """
import socket, sys
from types import SimpleNamespace
from tests.relay.server.plain_echo import app
from relay.server.daphne_server import serve
relay = SimpleNamespace(handshake_timeout_s=10, max_message_bytes=2**24, tls_cert="", tls_key="")
listener = socket.socket(fileno=int(sys.argv[1]))
listener.setblocking(False)
sys.exit(serve(app, SimpleNamespace(relay=relay), [listener], lambda: True))
"""


@pytest.fixture(scope="module", params=["stock", "relay"])
def daphne(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Run daphne with the echo application, and return the way it is run and its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    number = str(listener.fileno())
    command = ["-c", AS_THE_RELAY_RUNS_IT, number]
    if request.param == "stock":
        command = ["-m", "daphne", "--fd", number, "tests.relay.server.plain_echo:app"]
    process = subprocess.Popen(
        [sys.executable, *command],
        pass_fds=[listener.fileno()],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield request.param, f"ws://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        process.terminate()
        process.wait(10)
        listener.close()


async def ended(echo: Echo) -> tuple[int, str | None]:
    async with asyncio.timeout(5):
        while not echo.ends:
            await asyncio.sleep(0.005)
    assert len(echo.ends) == 1
    return echo.ends[0]


async def refused(url: str, message: bytes | str) -> tuple[int, str]:
    """Send a message, and return code and reason of the close frame that it causes."""
    async with connect(url, max_size=None) as client:
        await client.send(message)
        with pytest.raises(ConnectionClosed) as end:
            while True:
                await client.recv()
    assert end.value.rcvd is not None
    return end.value.rcvd.code, end.value.rcvd.reason


def test_under_uvicorns_own_protocols(run: Run) -> None:
    async def main() -> None:
        app = PlainEchoApp()
        async with plain_uvicorn(app) as url:
            async with connect(url) as client:
                for size in (0, 1, 1000, 300_000):
                    await client.send(b"m" * size)
                    assert await client.recv() == b"m" * size
                (echo,) = app.echoes
                assert echo.socket.acknowledged() == echo.socket.written == echo.positions[-1]
                assert echo.socket.remote.startswith("127.0.0.1:")
            assert await ended(echo) == (1000, None)

            assert await refused(url, "text") == (1003, "text_frame")
            assert await ended(app.echoes[1]) == (1003, "text_frame")
            assert await refused(url, b"x" * 500_001) == (1009, "too_large")
            assert await ended(app.echoes[2]) == (1009, "too_large")
            assert (await refused(url, b"close"))[0] == 4001
            assert await ended(app.echoes[3]) == (4001, None)
            async with connect(url) as client:
                await client.send(b"abort")
                with pytest.raises(ConnectionClosed):
                    await client.recv()
            assert await ended(app.echoes[4]) == (1006, None)
            assert app.echoes[4].socket.acknowledged() < app.echoes[4].positions[-1]

    run(main())


async def test_under_daphne(daphne: tuple[str, str]) -> None:
    kind, url = daphne
    # The listener is open already: the connection waits in its backlog until daphne has started.
    async with connect(url, max_size=None, open_timeout=25) as client:
        for size in (1, 1000, 300_000):
            await client.send(b"m" * size)
            assert await client.recv() == b"m" * size
    found = [await refused(url, message) for message in ("text", b"x" * 500_001, b"close")]
    if kind == "stock":
        assert [code for code, _ in found] == [1000, 1000, 4001]
    else:
        assert found == [(1003, "text_frame"), (1009, "too_large"), (4001, "replaced")]
        async with asyncio.timeout(5), connect(url) as client:
            await client.send(b"abort")
            with pytest.raises(ConnectionClosed) as end:
                await client.recv()
            assert end.value.rcvd is None


class Wires:
    """The server's side of `receive` and `send`, which the test controls."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[dict[str, Any]] = []
        self.may_send = asyncio.Event()
        self.may_send.set()
        self.gone = False

    async def send(self, message: dict[str, Any]) -> None:
        await self.may_send.wait()
        if self.gone:
            raise OSError("the client is gone")
        self.sent.append(message)


def started(wires: Wires) -> tuple[AsgiSocket, Echo, asyncio.Task[None]]:
    relay_socket = AsgiSocket(wires.incoming.get, wires.send, {}, close_timeout_s=0.05)
    echo = Echo(relay_socket)
    relay_socket.start(echo)
    return relay_socket, echo, asyncio.create_task(relay_socket.run())


async def test_acknowledged_is_what_the_server_took() -> None:
    wires = Wires()
    wires.may_send.clear()
    relay_socket, echo, task = started(wires)
    position = relay_socket.send_messages([b"one", b"two"])
    assert position == relay_socket.buffered_bytes() == 10
    await asyncio.sleep(0)
    assert relay_socket.acknowledged() == 0
    assert not relay_socket.drained()
    wires.may_send.set()
    while not relay_socket.drained():
        await asyncio.sleep(0)
    assert relay_socket.acknowledged() == position
    assert [message["bytes"] for message in wires.sent] == [b"one", b"two"]
    wires.incoming.put_nowait({"type": "websocket.disconnect", "code": 1001})
    await task
    assert echo.ends == [(1001, None)]


async def test_what_the_server_did_not_take_is_given_up_at_a_close() -> None:
    wires = Wires()
    wires.may_send.clear()
    relay_socket, echo, task = started(wires)
    first = relay_socket.send_messages([b"one"])
    await asyncio.sleep(0)
    relay_socket.close(4001, "replaced")
    relay_socket.close(4002, "again")
    assert relay_socket.send_messages([b"late"]) > first
    wires.may_send.set()
    await task  # ends in time although the client never answers the close
    assert relay_socket.acknowledged() == 0
    assert relay_socket.drained()
    assert echo.ends == [(4001, None)]
    assert wires.sent[-1] == {"type": "websocket.close", "code": 4001, "reason": "replaced"}


async def test_writable_once_below_the_mark_again() -> None:
    wires = Wires()
    wires.may_send.clear()
    relay_socket, echo, task = started(wires)
    relay_socket.send_messages([b"m" * 1000] * (HIGH_WATER_BYTES // 1000 + 1))
    wires.may_send.set()
    while not relay_socket.drained():
        await asyncio.sleep(0)
    assert echo.writables == 1
    relay_socket.abort()
    await task
    assert echo.ends == [(1006, None)]


async def test_paused_reading() -> None:
    wires = Wires()
    relay_socket, echo, task = started(wires)
    for _ in range(5):  # the pump requests one message immediately
        await asyncio.sleep(0)
    relay_socket.pause_reading()
    for _ in range(3):
        wires.incoming.put_nowait({"type": "websocket.receive", "bytes": b"m"})
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(echo.messages) == 1
    relay_socket.resume_reading()
    while len(echo.messages) < 3:
        await asyncio.sleep(0)
    relay_socket.abort()
    await task


async def test_a_server_that_says_so_in_send() -> None:
    wires = Wires()
    wires.gone = True
    relay_socket, echo, task = started(wires)
    position = relay_socket.send_messages([b"one"])
    await task
    assert relay_socket.acknowledged() < position
    assert echo.ends == [(1006, None)]


async def test_a_failing_receiver_is_not_swallowed() -> None:
    wires = Wires()
    _socket, echo, task = started(wires)

    def fail(messages: list[bytes]) -> None:
        raise ValueError("on purpose")

    echo.messages_received = fail  # type: ignore[method-assign]
    wires.incoming.put_nowait({"type": "websocket.receive", "bytes": b"m"})
    with pytest.raises(ValueError, match="on purpose"):
        await task
    assert echo.ends == [(1006, None)]


async def test_abort_before_the_pump_ran() -> None:
    wires = Wires()
    relay_socket = AsgiSocket(wires.incoming.get, wires.send, {})
    echo = Echo(relay_socket)
    relay_socket.start(echo)
    relay_socket.abort()
    await relay_socket.run()
    assert echo.ends == [(1006, None)]
