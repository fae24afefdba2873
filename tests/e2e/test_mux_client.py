"""This project's client of streams at the server of the reference, `@matrixai/ws` in Node.js."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from peer.mux import (
    ConnectionEndedError,
    MuxBounds,
    MuxSession,
    MuxStream,
    StreamFailedError,
    connect,
)
from proto.mux.events import FailReason
from tests.support.certificates import make_certificate
from tests.support.node import js_server

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("mux"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(certificate: tuple[Path, Path]) -> AsyncIterator[str]:
    """Start a server and return its URL."""
    async with js_server("mux_server.js", certificate) as url:
        yield url


@pytest.fixture
def trust(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate[0]))


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def echo(session: MuxSession, data: bytes) -> bytes:
    async with session.open() as stream:
        await stream.write(b"echo\n")
        reading = asyncio.create_task(stream.read_all())
        await stream.write(data)
        await stream.end()
        return await reading


async def test_echo(server: str, trust: ssl.SSLContext) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server, tls=trust) as session:
        for size in (1, 1000, 3 << 20):
            data = bytes(number % 251 for number in range(1000)) * (size // 1000 + 1)
            assert await echo(session, data[:size]) == data[:size]


async def test_many_streams_at_once(server: str, trust: ssl.SSLContext) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server, tls=trust) as session:
        parts = [b"%d" % number * 1000 for number in range(100)]
        assert await asyncio.gather(*(echo(session, part) for part in parts)) == parts
        assert len(session.mux) == 0


async def test_short_streams_one_after_another(server: str, trust: ssl.SSLContext) -> None:
    """Neither side loses the last bytes before an end (G2), or leaves a stream open (G3)."""
    async with asyncio.timeout(TIMEOUT_S), connect(server, tls=trust) as session:
        for number in range(50):
            async with session.open() as stream:
                await stream.write(b"sink\n")
                await stream.end()
                assert await stream.read_all() == b"0", number
        assert len(session.mux) == 0


async def test_a_reader_that_waits_holds_the_writer_up(server: str, trust: ssl.SSLContext) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(server, tls=trust) as session,
        session.open() as stream,
    ):
        await stream.write(b"stall\n")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                while True:
                    await stream.write(bytes(100_000))
        assert session.mux.queued_bytes < 500_000
        stream.abort(3)
        assert session.mux.queued_bytes == 0
        assert await echo(session, b"others go on") == b"others go on"


async def test_the_other_side_gives_up(server: str, trust: ssl.SSLContext) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(server, tls=trust) as session,
        session.open() as stream,
    ):
        await stream.write(b"fail 16384\n")
        with pytest.raises(StreamFailedError, match="code 16384") as failed:
            await stream.read()
        assert (failed.value.code, failed.value.reason) == (16384, FailReason.PEER)
        with pytest.raises(StreamFailedError, match="writing: peer"):
            while True:
                await stream.write(b"more")
                await asyncio.sleep(0)


async def test_we_are_called_back(server: str, trust: ssl.SSLContext) -> None:
    async def answer(stream: MuxStream) -> None:
        await stream.write(b"you " + await stream.read_all())

    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(server, answer, tls=trust) as session,
        session.open() as stream,
    ):
        await stream.write(b"call\n")
        assert await stream.read_all() == b"you called"


async def test_a_stream_of_the_other_side_is_refused(server: str, trust: ssl.SSLContext) -> None:
    async with asyncio.timeout(TIMEOUT_S), connect(server, tls=trust) as session:
        async with session.open() as stream:
            await stream.write(b"call\n")
            assert await stream.read_all() == b"refused"
        assert (session.mux.counts.refused, session.mux.counts.accepted) == (1, 0)


async def test_the_other_side_stops(server: str, trust: ssl.SSLContext) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(server, tls=trust) as session,
        session.open() as waiting,
    ):
        await waiting.write(b"sink\n")
        async with session.open() as stream:
            await stream.write(b"stop 4001\n")
            await session.ended.wait()
            with pytest.raises(StreamFailedError, match="reading: connection"):
                await stream.read()
        with pytest.raises(StreamFailedError, match="writing: connection"):
            await waiting.write(b"more")
        with pytest.raises(ConnectionEndedError, match="4001 asked to"):
            await session.open_stream()


@pytest.mark.parametrize("interval_ms", [40, 0])
async def test_pings_keep_a_quiet_connection(
    certificate: tuple[Path, Path], trust: ssl.SSLContext, interval_ms: int
) -> None:
    """The client pings as long as the server does not; without pings the server closes (G7)."""
    silence_ms = 400
    bounds = MuxBounds(ping_interval_ms=interval_ms)
    async with (
        asyncio.timeout(TIMEOUT_S),
        js_server("mux_server.js", certificate, keepAliveTimeoutTime=silence_ms) as url,
        connect(url, tls=trust, bounds=bounds) as session,
    ):
        assert await echo(session, b"heard") == b"heard"  # from now on it listens
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2.5 * silence_ms / 1000):
                await session.ended.wait()
        assert session.ended.is_set() is (interval_ms == 0)


async def test_certificates_are_checked(server: str) -> None:
    with pytest.raises(ConnectionEndedError, match="CERTIFICATE_VERIFY_FAILED"):
        async with connect(server):
            pass


async def test_a_server_that_is_not_there() -> None:
    with pytest.raises(ConnectionEndedError, match=r"^ws://127\.0\.0\.1:1: "):
        async with connect("ws://127.0.0.1:1/"):
            pass


@pytest.mark.parametrize("url", ["http://h/", "ws:///x", "h:80", "ws://h/#x"])
async def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="must be ws://host/path"):
        async with connect(url):
            pass
