"""Connections of this project's client: certificates, IPv6, and servers that fail to answer.

Servers answer late, wrongly or not at all.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest

from peer import rpc
from peer.mux import ConnectionEndedError, MuxBounds, StreamFailedError, connect
from tests.relay.server.running import EchoApp, running
from tests.support.certificates import make_certificate
from tests.support.mux_server import MuxServer, echo, mux_server
from tests.support.stream_server import ConnectionHandler, stream_server

TIMEOUT_S = 60.0
Certificate = tuple[Path, Path]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    def made(name: str, **options: Any) -> Certificate:
        return make_certificate(tmp_path_factory.mktemp(name), **options)

    return {
        "good": made("good"),
        "expired": made("expired", life=datetime.timedelta(hours=-1)),
        "other": made("other", host="elsewhere"),
        "client": made("client"),
    }


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate[0]))


async def use(
    server: MuxServer, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> None:
    """Send data there and back."""
    scheme = "wss" if server.has_tls else "ws"
    async with (
        asyncio.timeout(TIMEOUT_S),
        connect(f"{scheme}://{host}:{server.port}/", tls=tls) as session,
        session.open() as stream,
    ):
        await stream.write(b"hello")
        assert await stream.read() == b"hello"


# --- certificates ---------------------------------------------------------------------------------


async def test_a_certificate_is_verified(certificates: dict[str, Certificate]) -> None:
    async with mux_server(echo, certificates["good"]) as server:
        with pytest.raises(
            ConnectionEndedError, match=r"^wss://127\.0\.0\.1:\d+: .*self-signed certificate"
        ):
            await use(server)
        await use(server, tls=trusting(certificates["good"]))
        await use(server, "localhost", trusting(certificates["good"]))


@pytest.mark.parametrize(
    ("name", "text"),
    [("expired", "certificate has expired"), ("other", "not valid for 'localhost'")],
)
async def test_a_trusted_certificate_that_is_not_right(
    certificates: dict[str, Certificate], name: str, text: str
) -> None:
    async with mux_server(echo, certificates[name]) as server:
        with pytest.raises(ConnectionEndedError, match=text):
            await use(server, "localhost", trusting(certificates[name]))


async def test_client_certificates(certificates: dict[str, Certificate]) -> None:
    options: dict[str, Any] = {
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
        "ssl_ca_certs": str(certificates["client"][0]),
    }
    async with mux_server(echo, certificates["good"], **options) as server:
        tls = trusting(certificates["good"])
        with pytest.raises(ConnectionEndedError, match="may require a client certificate"):
            await use(server, tls=tls)
        tls.load_cert_chain(*certificates["other"])
        with pytest.raises(ConnectionEndedError, match="may require a client certificate"):
            await use(server, tls=tls)
        tls = trusting(certificates["good"])
        tls.load_cert_chain(*certificates["client"])
        await use(server, tls=tls)


async def test_a_verification_of_ones_own(certificates: dict[str, Certificate]) -> None:
    """The client accepts what its TLS context accepts: here, this certificate under any name."""
    tls = trusting(certificates["other"])
    tls.check_hostname = False
    async with mux_server(echo, certificates["other"]) as server:
        await use(server, "localhost", tls)
    async with mux_server(echo, certificates["good"]) as server:
        with pytest.raises(ConnectionEndedError, match="certificate verify failed"):
            await use(server, "localhost", tls)


async def test_tls_to_a_server_without_it() -> None:
    async with mux_server(echo) as server:
        with pytest.raises(ConnectionEndedError, match="SSL"):
            async with connect(f"wss://127.0.0.1:{server.port}/"):
                pass


# --- places ---------------------------------------------------------------------------------------


async def test_ipv6(certificates: dict[str, Certificate]) -> None:
    async with mux_server(echo, host="::1") as server:
        await use(server, "[::1]")
    async with mux_server(echo, certificates["good"], host="::1") as server:
        await use(server, "[::1]", trusting(certificates["good"]))


async def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(ConnectionEndedError, match=r"^ws://no\.invalid: .*"):
        async with connect("ws://no.invalid/"):
            pass


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("ws://user:secret@h/", "must have no user name"),
        ("ws://h:99999/", "the host or the port is invalid"),
        ("ws://h:x/", "the host or the port is invalid"),
        ("ws://a..b/", "the host or the port is invalid"),
    ],
)
async def test_urls_that_are_refused(url: str, text: str) -> None:
    with pytest.raises(ValueError, match=text) as refused:
        async with connect(url):
            pass
    assert "secret" not in str(refused.value)


async def test_an_error_does_not_repeat_the_query() -> None:
    with pytest.raises(ConnectionEndedError, match=r"^ws://127\.0\.0\.1:1: .*") as refused:
        async with connect("ws://127.0.0.1:1/?secret"):
            pass
    assert "secret" not in str(refused.value)


# --- servers that do not answer as they should ----------------------------------------------------


def answering(answer: bytes) -> ConnectionHandler:
    """Return a handler that answers every request with these bytes, and reads on."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await reader.read()

    return handle


async def test_a_server_that_never_answers(certificates: dict[str, Certificate]) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with stream_server(silent) as server:
        for scheme in ("ws", "wss"):
            url = f"{scheme}://127.0.0.1:{server.port}/"
            for connecting in (connect, rpc.connect):
                with pytest.raises(ConnectionEndedError, match=r"no answer within 0\.1 s"):
                    async with connecting(url, open_timeout_s=0.1):
                        pass


async def test_a_server_that_accepts_no_stream() -> None:
    async with running(EchoApp(echo=False)) as server:
        bounds = MuxBounds(open_timeout_ms=100)
        async with connect(server.url, bounds=bounds) as session:
            with pytest.raises(StreamFailedError, match="open timeout"):
                await session.open_stream()
            assert len(session.mux) == 0


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\n\r\nbanned",
            "refused with status 403: b",
        ),
        (b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", "status 503: Service Unavailable"),
        (b"HTTP/1.1 302 F\r\nLocation: ws://h/\r\nContent-Length: 0\r\n\r\n", "status 302: Found"),
        (b"SSH-2.0-x\r\n\r\n", "unknown protocol"),
        (b"HTTP/1.1 101 S\r\n" + b"a: b\r\n" * 100_000, "exceed max_size"),
        (
            b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: wrong\r\n\r\n",
            "invalid sec-websocket-accept",
        ),
    ],
)
async def test_other_answers(answer: bytes, text: str) -> None:
    async with stream_server(answering(answer)) as server:
        with pytest.raises(ConnectionEndedError, match=text):
            async with connect(f"ws://127.0.0.1:{server.port}/", open_timeout_s=5):
                pass


async def test_a_server_that_ends_without_an_answer() -> None:
    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with stream_server(end) as server:
        with pytest.raises(ConnectionEndedError, match="closed before the connection was open"):
            async with connect(f"ws://127.0.0.1:{server.port}/"):
                pass
