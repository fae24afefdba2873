"""The cases of the reference's server tester, against a server that `sbd_runner` starts."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from proto.sbd import frames
from tests.interop import sbd_runner
from tests.proto.sbd.pairs import Identity
from tests.support.sbd_client import RawClient

NUMBERS = itertools.count(10_000)
NONE = frames.ZEROS + b"none" + bytes(17)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the server as a tester does, over stdin and stdout alone; yield its URL."""
    log = tmp_path_factory.mktemp("runner") / "log"
    with log.open("wb") as errors:
        runner = subprocess.Popen(
            [sys.executable, "-m", sbd_runner.__name__],
            cwd=sbd_runner.ROOT,
            env={**os.environ, "RMB_RELAY__PROCESSES": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with runner:
        assert runner.stdin is not None and runner.stdout is not None
        assert runner.stdout.readline() == "CMD/READY\n"
        runner.stdin.write("CMD/START\n")
        runner.stdin.flush()
        word, start, address = runner.stdout.readline().strip().split("/")
        assert (word, start) == ("CMD", "START")
        yield f"ws://{address}"
        runner.stdin.close()
    assert runner.returncode == 0, Path(log).read_text()


def client(url: str, path: str | None = None) -> RawClient:
    return RawClient(url, Identity(next(NUMBERS)), path)


async def test_1_sanity(url: str) -> None:
    async with client(url) as one, client(url) as two:
        await asyncio.gather(one.forward(two.key, b"hello"), two.forward(one.key, b"world"))
        assert await one.receive() == frames.Forward(two.key, b"world")
        assert await two.receive() == frames.Forward(one.key, b"hello")


async def test_2_bad_path(url: str) -> None:
    with pytest.raises(InvalidStatus):
        async with client(url, "bad-pubkey-path").opened():
            pass


async def test_3_bad_signature(url: str) -> None:
    async with client(url).opened() as one:
        await one.challenge()
        await one.send(frames.auth_response(bytes(64)))
        assert await one.ended() is None  # nothing but limits before


async def test_4_and_5_unknown_commands(url: str) -> None:
    async with client(url).opened() as one:
        await one.send(NONE)
        await one.sign_in()
        await one.send(NONE)
        await one.forward(one.key, b"")
        assert await one.receive() == frames.Forward(one.key, b"")


async def test_6_a_message_that_is_too_large(url: str) -> None:
    async with client(url) as one:
        await one.send(one.key.ljust(25_000, b"\0"))
        assert await one.ended() is None


async def echo(one: RawClient) -> None:
    while True:
        packet = await one.receive()
        await one.forward(packet.key, packet.payload)


@contextlib.asynccontextmanager
async def echoing(one: RawClient) -> AsyncIterator[None]:
    task = asyncio.ensure_future(echo(one))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_7_order(url: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(client(url))
        await stack.enter_async_context(echoing(server))
        clients = [await stack.enter_async_context(client(url)) for _ in range(10)]

        async def talk(one: RawClient) -> None:
            await one.forward(server.key, b"a")
            assert await one.receive() == frames.Forward(server.key, b"a")
            for letter in b"bcdefghij":
                await one.forward(server.key, bytes([letter]))
            for letter in b"bcdefghij":
                assert await one.receive() == frames.Forward(server.key, bytes([letter]))

        await asyncio.gather(*map(talk, clients))


async def test_8_right_destination(url: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(client(url)) for _ in range(10)]
        for server in servers:
            await stack.enter_async_context(echoing(server))
        clients = [await stack.enter_async_context(client(url)) for _ in range(10)]

        async def talk(number: int) -> None:
            one, server = clients[number], servers[number]
            for turn in range(10):
                payload = f"{number}-{turn}".encode()
                await one.forward(server.key, payload)
                assert await one.receive() == frames.Forward(server.key, payload)

        await asyncio.gather(*map(talk, range(10)))
