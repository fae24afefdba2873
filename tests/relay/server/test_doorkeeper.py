"""How a relay that is starting answers clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay.server import doorkeeper
from relay.server.doorkeeper import Doorkeeper
from relay.server.lifeline import tell_ready
from relay.server.listen import ListenAddress, close_listeners, open_listeners
from rmbsite.config import load
from tests.support.certificates import make_certificate
from tests.support.raw_http import UPGRADE_HEADERS, read_answer, tcp

BODY = b"x" * 300_000
POST = b"POST / HTTP/1.1\r\nHost: relay\r\nContent-Length: %d\r\n\r\n" % len(BODY)


@contextlib.asynccontextmanager
async def _starting(**settings: str) -> AsyncIterator[int]:
    """Run the doorkeeper of a relay that is starting, and return its port."""
    listeners = open_listeners(ListenAddress("127.0.0.1"), backlog=16)
    try:
        relay = load({f"relay.{key}": value for key, value in settings.items()}, environ={}).relay
        keeper = Doorkeeper(listeners, relay)
        try:
            yield listeners[0].getsockname()[1]
        finally:
            keeper.leave()
            os.close(keeper.accepting_fd)
    finally:
        close_listeners(listeners)


@pytest.mark.parametrize(
    "request_bytes",
    [POST, POST + BODY, f"GET /?token HTTP/1.1\r\n{UPGRADE_HEADERS}\r\n".encode()],
    ids=["head", "whole", "websocket"],
)
async def test_a_request_is_answered_503_at_once(request_bytes: bytes) -> None:
    async with _starting() as port, tcp(port) as (reader, writer):
        writer.write(request_bytes)
        answer = await read_answer(reader)
    assert (answer.status, answer.body) == (503, b"relay is not ready for this yet")
    assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")


async def test_over_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    async with _starting(tls_cert=str(certificate), tls_key=str(key)) as port:
        context = ssl.create_default_context(cafile=str(certificate))
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(POST)
        assert (await read_answer(reader)).status == 503
        writer.close()
        await writer.wait_closed()


async def test_a_bad_certificate_is_for_the_workers_to_tell(tmp_path: Path) -> None:
    broken = tmp_path / "cert.pem"
    broken.write_text("no certificate")
    async with _starting(tls_cert=str(broken), tls_key=str(broken)):
        pass


async def test_too_many_clients_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "MOST_CLIENTS", 1)
    async with _starting() as port, tcp(port), tcp(port) as (reader, _):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_a_silent_client_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "SILENT_S", 0.01)
    async with _starting() as port, tcp(port) as (reader, _):
        assert await reader.read() == b""


async def test_who_accepts_gets_every_connection_from_then_on() -> None:
    listeners = open_listeners(ListenAddress("127.0.0.1"), backlog=16)
    keeper = Doorkeeper(listeners, load({}, environ={}).relay)
    try:
        with socket.create_connection(listeners[0].getsockname()) as client:
            tell_ready(keeper.accepting_fd)  # the loop gets both events at the same time
            await asyncio.sleep(0)
            connection, address = listeners[0].accept()
            assert address == client.getsockname()
            connection.close()
    finally:
        keeper.leave()
        close_listeners(listeners)
