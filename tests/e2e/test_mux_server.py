"""This project's server of streams, driven by the reference's client, `@matrixai/ws` in Node.js."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from peer.mux import ConnectionEndedError, MuxBounds, MuxSession, MuxStream, StreamFailedError
from proto.mux.events import FailReason
from tests.support.certificates import make_certificate
from tests.support.mux_server import MuxServer, echo, first_line, mux_server
from tests.support.node import JsClient, JsError, js_client
from tests.support.waiting import eventually

TIMEOUT_S = 60.0
WINDOW = 256 * 1024
JS_WINDOW = 1 << 20
JS_PIECE = 64 * 1024
SILENCE_MS = 400

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Served:
    """Results that the handlers of the server record."""

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.failed: asyncio.Queue[StreamFailedError] = asyncio.Queue()
        self.read: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, stream: MuxStream) -> None:
        """Do what the first line of a stream says."""
        line, rest = await first_line(stream)
        verb, _, number = line.partition(" ")
        try:
            match verb:
                case "echo":
                    await echo(stream, rest)
                case "hold":  # read nothing until told to
                    await self.release.wait()
                    size = len(rest + await stream.read_all())
                    await stream.write(b"%d" % size)
                case "flood":
                    for _ in range(int(number) // 1000):
                        await stream.write(bytes(1000))
                    await stream.drain()
                case "fail":
                    stream.cancel(int(number))
                    stream.abort(int(number))
                case "last":  # end first, then read on
                    await stream.write(b"all")
                    await stream.end()
                    self.read.put_nowait(rest + await stream.read_all())
                case "first":  # read up to the end, then write
                    self.read.put_nowait(rest + await stream.read_all())
                    await stream.write(b"the rest")
        except StreamFailedError as error:
            self.failed.put_nowait(error)
            raise


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("mux"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> Served:
    return Served()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(served: Served, certificate: tuple[Path, Path]) -> AsyncIterator[MuxServer]:
    async with mux_server(served.serve, certificate) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def js(certificate: tuple[Path, Path]) -> AsyncIterator[JsClient]:
    async with js_client("mux_client.js", str(certificate[0])) as client:
        yield client


numbers = itertools.count()


class Connection:
    """A connection of Node.js, and the server's side of it."""

    def __init__(self, js: JsClient, name: str, session: MuxSession) -> None:
        self.session = session
        self._js = js
        self._name = name

    async def ask(self, verb: str, **given: Any) -> Any:
        return await self._js.ask(verb, on=self._name, **given)

    async def open(self, say: str) -> JsStream:
        """Open a stream from Node.js that begins with this line."""
        name = f"s{next(numbers)}"
        await self.ask("open", **{"as": name, "say": say})
        return JsStream(self._js, name)


class JsStream:
    """A stream that Node.js opened."""

    def __init__(self, js: JsClient, name: str) -> None:
        self._js = js
        self._name = name

    async def ask(self, verb: str, **given: Any) -> Any:
        return await self._js.ask(verb, **given, **{"as": self._name})


async def connected(js: JsClient, server: MuxServer, **config: Any) -> Connection:
    name = f"c{next(numbers)}"
    await js.ask("connect", on=name, port=server.port, config=config)
    return Connection(js, name, await server.session())


@pytest_asyncio.fixture(loop_scope="module")
async def connection(js: JsClient, server: MuxServer) -> AsyncIterator[Connection]:
    """Open a connection for one test; check afterwards that neither side has a stream left."""
    async with asyncio.timeout(TIMEOUT_S):
        connection = await connected(js, server)
        yield connection
        await eventually(lambda: not len(connection.session.mux))
        assert await connection.ask("live") == 0
        await connection.ask("stop", code=1000, reason="")


# --- bytes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 5, JS_PIECE, WINDOW, WINDOW + 1, 3 << 20])
async def test_echo(connection: Connection, size: int) -> None:
    assert await connection.ask("rounds", size=size, count=1) == 0


async def test_a_window_in_one_message(connection: Connection) -> None:
    """A client sends all that it was granted in one frame, which the websocket accepts (G8)."""
    assert await connection.ask("rounds", size=1 << 20, count=1, most=1 << 20) == 0


async def test_many_streams_at_once(connection: Connection) -> None:
    assert await connection.ask("rounds", size=10_000, count=200) == 0
    assert connection.session.mux.counts.accepted == 200


async def test_short_streams_one_after_another(connection: Connection) -> None:
    """Nothing is lost before an end (G2), no spurious stream opens (G1), none stays open (G3)."""
    for _ in range(30):
        assert await connection.ask("rounds", size=3, count=1) == 0
    assert await connection.ask("accepted") == 0


async def test_we_open_streams(connection: Connection) -> None:
    async def round_of(data: bytes) -> bytes:
        async with connection.session.open() as stream:
            await stream.write(data)
            await stream.end()
            return await stream.read_all()

    found = await asyncio.gather(*(round_of(b"%d" % number * 1000) for number in range(20)))
    assert found == [b"%d" % number * 1000 for number in range(20)]
    assert await connection.ask("accepted") == 20


async def test_we_open_streams_at_once(js: JsClient, server: MuxServer) -> None:
    """Streams that the server opens before a frame came wait until the client listens (G4)."""
    async with asyncio.timeout(TIMEOUT_S):
        name = f"c{next(numbers)}"
        connecting = js.begin("connect", on=name, port=server.port, config={})
        session = await server.session()
        async with session.open() as stream:
            await connecting
            await stream.write(b"hello")
            await stream.end()
            assert await stream.read_all() == b"hello"
        await js.ask("stop", on=name, code=1000, reason="")


# --- flow control ---------------------------------------------------------------------------------


async def test_a_writer_waits_for_our_reader(connection: Connection, served: Served) -> None:
    served.release.clear()
    mux = connection.session.mux
    stream = await connection.open("hold")
    await stream.ask("pour", size=2 << 20)
    await eventually(lambda: mux.counts.received_bytes >= WINDOW)
    assert await connection.ask("rounds", size=1000, count=1) == 0  # other streams continue
    assert mux.held_bytes <= WINDOW
    assert await stream.ask("written") <= WINDOW + JS_PIECE
    served.release.set()
    await stream.ask("poured")
    await stream.ask("end")
    assert await stream.ask("text") == str(2 << 20)


async def test_our_writer_waits_for_a_reader(connection: Connection) -> None:
    counts = connection.session.mux.counts
    stream = await connection.open("flood 8000000")
    await eventually(lambda: counts.stalls)
    assert await connection.ask("rounds", size=1000, count=1) == 0
    assert counts.sent_bytes <= JS_WINDOW + 2 * JS_PIECE + 5000
    assert connection.session.mux.queued_bytes < 2 * WINDOW  # what our handler wrote
    assert await stream.ask("size") == 8_000_000


async def test_a_reader_that_gives_up(connection: Connection, served: Served) -> None:
    stream = await connection.open("flood 8000000")
    await eventually(lambda: connection.session.mux.counts.stalls)
    await stream.ask("giveUp", code=7)
    error = await served.failed.get()
    assert (error.code, error.reason) == (7, FailReason.PEER)
    assert str(error) == "writing: peer, code 7"
    assert connection.session.mux.queued_bytes == 0


# --- ends and failures ----------------------------------------------------------------------------


async def test_an_abort(connection: Connection, served: Served) -> None:
    stream = await connection.open("echo")
    await stream.ask("abort", code=16384)
    error = await served.failed.get()
    assert (error.code, str(error)) == (16384, "reading: peer, code 16384")
    with pytest.raises(JsError, match="code 0"):  # a handler that failed abandons the rest
        await stream.ask("text")


async def test_a_cancel(connection: Connection, served: Served) -> None:
    """A cancel ends one direction of a stream; the client can still write in the other.

    No bytes are on their way, as they would end the client's process (G5).
    """
    stream = await connection.open("first")
    await stream.ask("cancel", code=9)
    await stream.ask("write", text="more")
    await stream.ask("end")
    assert await served.read.get() == b"more"
    error = await served.failed.get()
    assert str(error) == "writing: peer, code 9"


async def test_we_fail_a_stream(connection: Connection) -> None:
    stream = await connection.open("fail 16384")
    with pytest.raises(JsError) as failed:
        await stream.ask("text")
    assert failed.value.found["code"] == 16384
    await stream.ask("over")


async def test_the_client_ends_first(connection: Connection, served: Served) -> None:
    stream = await connection.open("first")
    await stream.ask("write", text="abc")
    await stream.ask("end")
    assert await served.read.get() == b"abc"
    assert await stream.ask("text") == "the rest"
    await stream.ask("over")


async def test_we_end_first(connection: Connection, served: Served) -> None:
    """After it ended its side, the server still grants bytes.

    The acknowledgements come once more after that end (G1).
    """
    stream = await connection.open("last")
    assert await stream.ask("text") == "all"
    await stream.ask("pour", size=1 << 20)
    await stream.ask("poured")
    await stream.ask("end")
    assert len(await served.read.get()) == 1 << 20
    await stream.ask("over")
    assert await connection.ask("accepted") == 0


async def test_streams_beyond_the_bound(js: JsClient, certificate: tuple[Path, Path]) -> None:
    served, bounds = Served(), MuxBounds(max_streams=2)
    async with (
        asyncio.timeout(TIMEOUT_S),
        mux_server(served.serve, certificate, bounds) as server,
    ):
        connection = await connected(js, server)
        streams = [await connection.open("hold") for _ in range(2)]
        with pytest.raises(JsError) as failed:
            await connection.open("echo")
        assert failed.value.found["code"] == 0
        served.release.set()
        for stream in streams:
            await stream.ask("end")
            assert await stream.ask("text") == "0"
        assert await connection.ask("rounds", size=10, count=1) == 0
        assert connection.session.mux.counts.refused == 1
        await connection.ask("stop", code=1000, reason="")


# --- the connection -------------------------------------------------------------------------------


async def test_the_client_stops(js: JsClient, server: MuxServer, served: Served) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        connection = await connected(js, server)
        await connection.open("first")
        await connection.ask("stop", code=4001, reason="enough")
        await connection.session.ended.wait()
        assert str(await served.failed.get()) == "reading: connection"
        with pytest.raises(ConnectionEndedError, match="4001"):
            await connection.session.open_stream()


async def test_we_stop(js: JsClient, server: MuxServer) -> None:
    """The client answers the closing handshake at once (G10)."""
    async with asyncio.timeout(TIMEOUT_S):
        connection = await connected(js, server)
        stream = await connection.open("first")
        await connection.session.close(4002, "going")
        ended = await connection.ask("ended")
        assert (ended["errorCode"], ended["reason"]) == (4002, "going")
        with pytest.raises(JsError, match="4002"):
            await stream.ask("text")


async def test_its_pings_keep_it_alive(js: JsClient, server: MuxServer) -> None:
    """The dialling side's pings keep the connection open; the server never pings by itself (G7)."""
    async with asyncio.timeout(TIMEOUT_S):
        interval, timeout = 40, SILENCE_MS
        connection = await connected(
            js, server, keepAliveIntervalTime=interval, keepAliveTimeoutTime=timeout
        )
        await connection.ask("pongs", count=2 * timeout // interval)
        assert not connection.session.ended.is_set()
        assert await connection.ask("rounds", size=10, count=1) == 0
        await connection.ask("stop", code=1000, reason="")


async def test_a_certificate_that_it_does_not_trust(
    js: JsClient, server: MuxServer, tmp_path: Path
) -> None:
    other, _ = make_certificate(tmp_path)
    with pytest.raises(JsError) as failed:
        await connected(js, server, ca=other.read_text())
    assert failed.value.found["cause"]["code"] == "DEPTH_ZERO_SELF_SIGNED_CERT"


async def test_its_certificate(
    js: JsClient, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    path, key = make_certificate(tmp_path, host="client")
    options = {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": str(path)}
    async with asyncio.timeout(TIMEOUT_S), mux_server(None, certificate, None, **options) as server:
        with pytest.raises(JsError):
            await connected(js, server)
        shown = {"cert": path.read_text(), "key": key.read_text()}
        connection = await connected(js, server, **shown)
        await connection.ask("stop", code=1000, reason="")
