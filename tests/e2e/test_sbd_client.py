"""The SBD clients of `peer.sbd`, against a relay with two workers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection, serve

from peer.sbd import (
    ClosedError,
    ConnectError,
    E2eClient,
    MessageSizeError,
    PeerError,
    SbdClient,
    TooManyPeersError,
    path_of_key,
)
from proto.sbd import frames
from proto.sbd.bounds import MAX_PAYLOAD_BYTES, MAX_PLAINTEXT_BYTES, MAX_WAITING_BYTES
from tests.e2e.conftest import StartRelay, _shared
from tests.support.hook_server import hook_server
from tests.support.redis_servers import free_port
from tests.support.relay_process import ROOT, RelayProcess
from tests.support.waiting import eventually

SEED = bytes(range(32))


@pytest.fixture(scope="module")
def sbd(tmp_path_factory: pytest.TempPathFactory, data_template: Path) -> Iterator[RelayProcess]:
    settings = {
        "sbd.enabled": "true",
        "sbd.idle_ms": "1000",
        "sbd.limit_kbit_per_s": "80000",
        # A loaded machine reads late, and then a lot at once.
        "sbd.limit_burst_bytes": "4000000",
    }
    yield from _shared(tmp_path_factory, data_template, processes=2, settings=settings)


async def test_packets_both_ways(sbd: RelayProcess) -> None:
    async with SbdClient(sbd.url) as one, SbdClient(sbd.url, SEED) as two:
        assert path_of_key(two.key) == "A6EHv_POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg"
        for message in (b"", b"hello", bytes(MAX_PAYLOAD_BYTES)):
            await one.send(two.key, message)
            assert await two.receive() == (one.key, message)
        await two.send(one.key, b"world")
        async for packet in one:
            assert packet == (two.key, b"world")
            break
        with pytest.raises(MessageSizeError):
            await one.send(two.key, bytes(MAX_PAYLOAD_BYTES + 1))


async def test_the_case_of_the_client_tester(sbd: RelayProcess) -> None:
    """Two clients connect at once, each sends to the other, and one leaves."""
    one, two = SbdClient(sbd.url), SbdClient(sbd.url)
    await asyncio.gather(one.open(), two.open())
    try:
        await asyncio.gather(one.send(two.key, b"hello"), two.send(one.key, b"world"))
        assert await one.receive() == (two.key, b"world")
        assert await two.receive() == (one.key, b"hello")
        await one.close()
        assert [packet async for packet in one] == []
        await two.send(one.key, b"lost")
        await two.send(two.key, b"to myself")
        assert await two.receive() == (two.key, b"to myself")
    finally:
        await asyncio.gather(one.close(), two.close())


async def test_a_client_stays_and_keeps_the_pace(sbd: RelayProcess) -> None:
    """A megabyte takes as long as the limit says; silence for several time-outs ends nothing."""
    size, count = 10_000, 100
    async with SbdClient(sbd.url) as one, SbdClient(sbd.url) as two:
        began = time.monotonic()

        async def send() -> None:
            for _ in range(count):
                await one.send(two.key, bytes(size))

        async def receive() -> None:
            for _ in range(count):
                await two.receive()

        async with asyncio.timeout(60):
            await asyncio.gather(send(), receive())
        # 100 ns a byte, and a tenth more; what waits in the end is sent without it.
        assert time.monotonic() - began >= (size * count - MAX_WAITING_BYTES) * 100e-9
        await asyncio.sleep(3)
        await one.send(two.key, b"still here")
        assert (await two.receive())[1] == b"still here"


async def test_what_is_not_read_holds_the_server_up(sbd: RelayProcess) -> None:
    async with SbdClient(sbd.url) as one, SbdClient(sbd.url) as two:
        for number in range(200):
            await one.send(two.key, number.to_bytes(2, "big"))
        for number in range(200):
            assert (await two.receive())[1] == number.to_bytes(2, "big")


async def test_the_end_is_told(sbd: RelayProcess) -> None:
    async with SbdClient(sbd.url, SEED) as older, SbdClient(sbd.url, SEED) as newer:
        with pytest.raises(ClosedError, match="the server ended the connection"):
            await older.receive()
        with pytest.raises(ClosedError):
            await older.send(newer.key, b"")
        assert [packet async for packet in older] == []
    with pytest.raises(ClosedError, match="the client was closed"):
        await newer.receive()


async def test_tokens(start_relay: StartRelay) -> None:
    with hook_server() as hook:
        relay = start_relay(settings={"sbd.enabled": "true", "sbd.hook_url": hook.url})
        async with SbdClient(relay.url, auth_material=b"material") as one:
            await one.send(one.key, b"hello")
            assert await one.receive() == (one.key, b"hello")
        assert hook.bodies == [b"material"]
        with pytest.raises(ConnectError, match="HTTP 401 Unauthorized"):
            await SbdClient(relay.url).open()
        hook.status = 401
        with pytest.raises(ConnectError, match="no token: HTTP 401"):
            await SbdClient(relay.url, auth_material=b"").open()


@contextlib.asynccontextmanager
async def answering(*messages: bytes) -> AsyncIterator[str]:
    """Start a server that sends these messages and then waits."""

    async def run(connection: ServerConnection) -> None:
        for message in messages:
            await connection.send(message)
        await connection.wait_closed()

    async with serve(run, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_servers_that_do_not_answer_or_break_the_protocol() -> None:
    with pytest.raises(ConnectError, match="Connect call failed"):
        await SbdClient(f"ws://127.0.0.1:{free_port()}").open()
    async with answering() as url:
        with pytest.raises(ConnectError, match=r"not ready within 0\.1 s"):
            await SbdClient(url, open_timeout_s=0.1).open()
    async with answering(b"short") as url:
        with pytest.raises(ConnectError, match="message of 5 bytes, at least 32"):
            await SbdClient(url).open()
    async with answering(frames.READY, frames.limit_idle(1)) as url, SbdClient(url) as one:
        with pytest.raises(ClosedError, match="the server sent lidl after it was ready"):
            await one.receive()


@pytest.mark.parametrize("url", ["http://host", "ws://", "sbd.example", "ws://host/?x", "ws://h#x"])
def test_urls(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be ws://host or wss://host"):
        SbdClient(url)


def test_a_seed_has_32_bytes() -> None:
    with pytest.raises(ValueError, match="a seed has 32 bytes, not 31"):
        SbdClient("ws://host", bytes(31))


# --- encrypted --------------------------------------------------------------------------------


async def test_encrypted_messages_both_ways(sbd: RelayProcess) -> None:
    async with E2eClient(sbd.url) as one, E2eClient(sbd.url, listener=True) as two:
        for message in (b"", b"hello", bytes(MAX_PLAINTEXT_BYTES)):
            await one.send(two.key, message)
            assert await two.receive() == (one.key, message)
        await two.send(one.key, b"world")
        async for message in one:
            assert message == (two.key, b"world")
            break
        assert one.active_peers() == [two.key]
        one.close_peer(two.key)
        assert one.active_peers() == []
        with pytest.raises(MessageSizeError):
            await one.send(two.key, bytes(MAX_PLAINTEXT_BYTES + 1))
        with pytest.raises(PeerError):
            await one.send(bytes(32), b"")


async def test_many_send_to_one_peer_at_once(sbd: RelayProcess) -> None:
    async with E2eClient(sbd.url) as one, E2eClient(sbd.url, listener=True) as two:
        await asyncio.gather(*(one.send(two.key, bytes([number])) for number in range(100)))
        assert sorted([(await two.receive())[1][0] for _ in range(100)]) == list(range(100))


async def test_a_peer_that_begins_again_under_its_key(sbd: RelayProcess) -> None:
    """A peer that restarts under its key knows no stream and asks for a new one.

    It gets the messages that are sent after that.
    """
    async with E2eClient(sbd.url, listener=True) as one:
        async with E2eClient(sbd.url, SEED, listener=True) as two:
            await one.send(two.key, b"before")
            assert await two.receive() == (one.key, b"before")
        reading = asyncio.ensure_future(one.receive())  # receives the request for a new stream
        async with asyncio.timeout(60), E2eClient(sbd.url, SEED, listener=True) as again:
            got = asyncio.ensure_future(again.receive())
            numbers = itertools.count()
            while not got.done():
                await one.send(again.key, b"%d" % next(numbers))
                await asyncio.wait([got], timeout=0.05)
            assert got.result()[0] == one.key
            assert int(got.result()[1]) > 0  # the first could not be read
        reading.cancel()


async def test_strangers_bounds_and_malformed_payloads(sbd: RelayProcess) -> None:
    async with (
        asyncio.timeout(60),
        E2eClient(sbd.url) as one,
        E2eClient(sbd.url, listener=True, max_peers=2, idle_s=0.5) as two,
        SbdClient(sbd.url) as liar,
    ):
        reading = asyncio.ensure_future(one.receive())
        await two.send(one.key, b"unasked")  # a client that is not a listener ignores it
        await two.send(liar.key, b"")
        with pytest.raises(TooManyPeersError, match="2 peers"):
            await two.send(SbdClient(sbd.url).key, b"")
        await eventually(lambda: two.active_peers() == [])
        with pytest.raises(PeerError):
            await two.send(two.key, b"to oneself")
        for payload in (b"", b"\x10", b"\x11", b"\x11" + bytes(16), b"\x12x", b"\xff" * 100):
            await liar.send(two.key, payload)
            await liar.send(one.key, payload)
        await one.send(two.key, b"hello")
        assert await two.receive() == (one.key, b"hello")
        await two.send(one.key, b"world")
        assert await reading == (two.key, b"world")


# --- rmb sbd ----------------------------------------------------------------------------------


async def rmb(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    process = await start(*arguments)
    out, err = await process.communicate(stdin)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "peer.cli.command", "sbd", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )


@contextlib.asynccontextmanager
async def listening(*arguments: str) -> AsyncIterator[tuple[str, asyncio.StreamReader]]:
    """Start a command that prints what it receives; yield its key and its output."""
    process = await start(*arguments)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            word, key = (await process.stdout.readline()).decode().split()
        assert word == "key"
        yield key, process.stdout
    finally:
        process.send_signal(signal.SIGINT)
        await process.communicate()


@pytest.mark.parametrize("more", [(), ("--encrypt",)], ids=["plain", "encrypted"])
async def test_a_chat_between_two_terminals(
    sbd: RelayProcess, tmp_path: Path, more: tuple[str, ...]
) -> None:
    seed = str(tmp_path / "seed")
    async with listening("listen", sbd.url, "--seed", seed, *more) as (key, shown):
        assert await rmb("send", sbd.url, key, "one", "two", *more) == (0, "", "")
        assert await rmb("send", sbd.url, key, *more, stdin=b"three\n") == (0, "", "")
        lines = [(await shown.readline()).decode().split() for _ in range(3)]
        assert [text for _, text in lines] == ["one", "two", "three"]
    assert (tmp_path / "seed").stat().st_mode & 0o777 == 0o600
    async with listening("echo", sbd.url, "--seed", seed, *more) as (same, _):
        assert same == key
        code, out, err = await rmb("ping", sbd.url, key, "-c", "2", *more)
        assert (code, out.count("ok"), err) == (0, 2, "")


async def test_rmb_sbd_tells_what_is_wrong(sbd: RelayProcess, tmp_path: Path) -> None:
    (tmp_path / "seed").write_text("no digits")
    key = path_of_key(SbdClient(sbd.url).key)
    for arguments, code, text in (
        (("send", sbd.url), 2, "KEY is missing"),
        (("send", sbd.url, "short", "x"), 2, "invalid key in the path"),
        (("listen", "http://host"), 2, "must be ws://host or wss://host"),
        (("listen", sbd.url, "--seed", str(tmp_path / "seed")), 2, "64 hexadecimal digits"),
        (("listen", f"ws://127.0.0.1:{free_port()}"), 1, "Connect call failed"),
        (("ping", sbd.url, key, "--timeout", "0.3"), 1, ""),
    ):
        found, _, err = await rmb(*arguments)
        assert found == code, err
        assert text in err
