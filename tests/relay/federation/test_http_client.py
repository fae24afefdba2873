"""Requests to relays that answer badly: the client bounds the size and time of each answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from relay.federation.http_client import (
    NEXT_ADDRESS_S,
    HttpClient,
    Reply,
    Unanswered,
    _alternating,
    request_opening,
)
from relay.federation.resolver import PublicResolver
from tests.support.certificates import make_certificate
from tests.support.envelopes import request
from tests.support.partner import answer, hang_up, silence
from tests.support.partner_server import partner
from tests.support.redis_servers import free_port
from tests.support.stream_server import stream_server

BODY = request((1, None), (2, None)).SerializeToString()


@contextlib.asynccontextmanager
async def client(scheme: str = "http", ca_file: str = "") -> AsyncIterator[HttpClient]:
    http = HttpClient(PublicResolver(True), scheme=scheme, connect_timeout_s=0.3, ca_file=ca_file)
    yield http
    await http.close()


async def post(http: HttpClient, domain: str, answer_bytes: int = 0) -> Reply:
    return await http.post(domain, "/", {"RMB-Relay": "here.example"}, BODY, 0.8, answer_bytes)


@contextlib.asynccontextmanager
async def raw_server(*parts: bytes, pause_s: float = 0.0, close: bool = True) -> AsyncIterator[str]:
    """Run a server that answers each request with `parts`, one after the other."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause_s)
            if not close:
                await reader.read()

    async with stream_server(serve) as server:
        yield f"127.0.0.1:{server.port}"


async def test_a_connection_is_used_again() -> None:
    async with partner() as other, client() as http:
        for _ in range(5):
            assert await post(http, other.domain) == Reply(202, None, False, b"")
        assert {each.connection for each in other.requests} == {1}
        for each in other.requests:
            assert each.body == BODY and each.method == "POST"
            assert set(each.headers) == {"host", "rmb-relay", "content-length"}


async def test_headers_that_matter_are_read() -> None:
    async with partner(offers=True) as other, client() as http:
        other.status = lambda _: 503
        other.headers = {"retry_after": "7"}
        assert await post(http, other.domain) == Reply(503, 7.0, True, b"")
        other.headers = {"retry_after": "Fri, 31 Dec 1999 23:59:59 GMT"}
        assert (await post(http, other.domain)).retry_after_s == 0.0
        other.headers = {"retry_after": "9" * 30}
        assert (await post(http, other.domain)).retry_after_s == 3600.0


async def test_redirects_are_not_followed() -> None:
    async with partner() as other, partner() as elsewhere, client() as http:
        other.answer = answer(307, location=f"http://{elsewhere.domain}/")
        assert (await post(http, other.domain)).status == 307
        assert not elsewhere.requests


async def test_an_endless_body_is_not_read() -> None:
    head = b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    async with raw_server(head, *[chunk] * 1000) as domain, client() as http:
        assert (await post(http, domain)).status == 202
        assert len((await post(http, domain, 10)).body) == 11


async def test_a_body_that_drips_is_not_waited_for() -> None:
    head = b"HTTP/1.1 202 Accepted\r\nContent-Length: 1000\r\n\r\n"
    async with raw_server(head, *[b"x"] * 50, pause_s=0.1) as domain, client() as http:
        started = time.monotonic()
        assert (await post(http, domain)).status == 202
        assert time.monotonic() - started < 0.6
        with pytest.raises(Unanswered, match="in time") as raised:
            await post(http, domain, 1000)
        assert raised.value.sent and raised.value.timed_out


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00\x01\x02 garbage\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 202 Accepted\r\nno colon\r\n\r\n",
        b"",
    ],
)
async def test_garbage_is_no_answer(answer: bytes) -> None:
    async with raw_server(answer) as domain, client() as http:
        with pytest.raises(Unanswered) as raised:
            await post(http, domain)
        assert raised.value.sent and not raised.value.timed_out


async def test_no_answer_ends_in_time() -> None:
    async with raw_server(close=False) as domain, client() as http:
        started = time.monotonic()
        with pytest.raises(Unanswered, match="no answer in time") as raised:
            await post(http, domain)
        assert 0.7 < time.monotonic() - started < 1.5
        assert raised.value.sent and raised.value.timed_out


async def test_nobody_there() -> None:
    async with client() as http:
        with pytest.raises(Unanswered, match="no connection") as raised:
            await post(http, f"127.0.0.1:{free_port()}")
        assert not raised.value.sent


async def test_texts_that_are_no_domain_reach_nobody() -> None:
    async with client() as http:
        for domain in ("", "user@127.0.0.1", "127.0.0.1/x", "a b", "::1"):
            with pytest.raises(Unanswered, match="must be host") as raised:
                await post(http, domain)
            assert not raised.value.sent


def _server_context(folder: Path) -> tuple[ssl.SSLContext, Path]:
    certificate, key = make_certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context, certificate


async def test_certificates_are_verified(tmp_path: Path) -> None:
    context, certificate = _server_context(tmp_path)
    async with partner(tls=context) as other:
        async with client("https") as http:
            with pytest.raises(Unanswered, match=r"(?i)certificate") as raised:
                await post(http, other.domain)
            assert not raised.value.sent and not other.requests
        async with client("https", str(certificate)) as http:
            assert (await post(http, other.domain)).status == 202
            assert (await post(http, f"localhost:{other.port}")).status == 202


def at(*addresses: str) -> PublicResolver:
    """Return a resolver that resolves all names to these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]
    return PublicResolver(True, lambda *_, **__: found)


async def test_a_silent_address_holds_the_next_one_up_for_a_moment(tmp_path: Path) -> None:
    """The client soon tries the next address, and closes its connection to the silent one."""
    context, certificate = _server_context(tmp_path)
    ended = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # a TLS handshake, never answered
        ended.set()

    async with (
        partner(tls=context) as other,
        stream_server(say_nothing, "127.0.0.2", other.port),
    ):
        http = HttpClient(
            at("127.0.0.2", "127.0.0.1"),
            scheme="https",
            connect_timeout_s=10.0,
            ca_file=str(certificate),
        )
        started = time.monotonic()
        reply = await http.post(f"localhost:{other.port}", "/", {}, BODY, 10.0)
        assert reply.status == 202
        assert NEXT_ADDRESS_S <= time.monotonic() - started < 5
        async with asyncio.timeout(5):
            await ended.wait()
        await http.close()


async def test_an_address_that_refuses_holds_nobody_up() -> None:
    async with partner() as other:
        http = HttpClient(
            at("127.0.0.2", "127.0.0.3", "127.0.0.1"), scheme="http", connect_timeout_s=10.0
        )
        reply = await http.post(f"many.example:{other.port}", "/", {}, BODY, 10.0)
        assert reply.status == 202
        await http.close()


async def test_addresses_that_all_fail() -> None:
    http = HttpClient(at("127.0.0.2", "127.0.0.3"), scheme="http", connect_timeout_s=10.0)
    with pytest.raises(Unanswered, match="refused") as raised:
        await http.post(f"none.example:{free_port()}", "/", {}, BODY, 10.0)
    assert not raised.value.sent
    await http.close()


def test_both_families_have_their_turn() -> None:
    found = _alternating(["::1", "::2", "::3", "192.0.2.1", "192.0.2.2"])
    assert list(found) == ["::1", "192.0.2.1", "::2", "192.0.2.2", "::3"]


def opening(domain: str) -> bytes:
    return request_opening(domain, "/", {"RMB-Relay": "here.example"})


async def test_a_post_at_once_needs_a_kept_connection() -> None:
    replies: asyncio.Queue[Reply | Unanswered] = asyncio.Queue()
    async with partner() as other, client() as http:
        start = opening(other.domain)
        assert not http.post_at_once(other.domain, start, BODY, 0.8, replies.put_nowait)
        await post(http, other.domain)
        for _ in range(3):
            assert http.post_at_once(other.domain, start, BODY, 0.8, replies.put_nowait)
            assert not http.post_at_once(other.domain, start, BODY, 0.8, replies.put_nowait)
            assert replies.empty()
            assert await replies.get() == Reply(202, None, False, b"")
        assert {each.connection for each in other.requests} == {1}
        for each in other.requests:
            assert each.body == BODY and each.method == "POST"
            assert set(each.headers) == {"host", "rmb-relay", "content-length"}


async def test_a_post_at_once_without_an_answer() -> None:
    replies: asyncio.Queue[Reply | Unanswered] = asyncio.Queue()
    async with partner() as other, client() as http:
        await post(http, other.domain)
        other.answer = silence
        assert http.post_at_once(other.domain, opening(other.domain), BODY, 0.1, replies.put_nowait)
        late = await replies.get()
        assert isinstance(late, Unanswered) and late.sent and late.timed_out
        other.answer = answer(202)
        await post(http, other.domain)
        other.answer = hang_up
        assert http.post_at_once(other.domain, opening(other.domain), BODY, 0.8, replies.put_nowait)
        ended = await replies.get()
        assert isinstance(ended, Unanswered) and ended.sent and not ended.timed_out


async def test_nothing_comes_after_the_close() -> None:
    replies: list[Reply | Unanswered] = []
    async with partner() as other:
        async with client() as http:
            await post(http, other.domain)
            assert http.post_at_once(other.domain, opening(other.domain), BODY, 0.8, replies.append)
        async with client() as http:  # by then any late reply would have arrived
            await post(http, other.domain)
        assert not replies


async def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    """Half of an unexpected answer does not become the head of the next request's answer."""
    replies: list[Reply | Unanswered] = []
    accepted = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
    for more in (accepted, b"HTTP/1.1 202 Acc"):
        async with raw_server(accepted + more, close=False) as domain, client() as http:
            assert (await post(http, domain)).status == 202
            assert not http.post_at_once(domain, opening(domain), BODY, 0.8, replies.append)
