"""Boundaries between requests: the server never reads what a client sends in two ways.

Behind a proxy that shares its connections among users, a body that is parsed as a request becomes
another user's request (RFC 9112, section 11.2). Each form is tested on both listeners, in one read
and with the bytes after the head in a separate read.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
import uvloop

from relay.server.frame_protocol import FrameProtocol
from tests.relay.server.running import Running, running

HOST = b"Host: x\r\n"
STOLEN = b"GET /stolen HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = b"Content-Length: %d\r\n" % len(STOLEN)
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
VERSION = b"Sec-WebSocket-Version: 13\r\n"
WEBSOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
OTHER = b"Connection: Upgrade\r\nUpgrade: foo\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
EMPTY_CHUNKS = b"0\r\n\r\n"
WAIT_S = 60.0
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")

LISTENERS = {"relay": FrameProtocol, "site": "websockets-sansio"}


class Site:
    """An application that answers with a description of each request; it refuses websockets."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            self.requests.append(("websocket", scope["path"], b""))
            await receive()
            await send({"type": "websocket.http.response.start", "status": 401, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b"no"})
            return
        body, more = b"", True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body, more = body + event["body"], event["more_body"]
        self.requests.append((scope["method"], scope["path"], body))
        _, _, asked = scope["path"].partition("/status/")
        status = int(asked or 200)
        answer = b"" if status in (204, 304) else scope["path"].encode()
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


@contextlib.asynccontextmanager
async def listening(name: str) -> AsyncIterator[tuple[Running, Site]]:
    site = Site()
    async with running(site, ws=LISTENERS[name]) as server:
        yield server, site


def on_both(test: Callable[[Running, Site], Awaitable[None]]) -> Any:
    """Run a test on a listener of each kind."""

    @pytest.mark.parametrize("name", sorted(LISTENERS))
    def runner(name: str) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), listening(name) as (server, site):
                await test(server, site)

        uvloop.run(main())

    runner.__name__, runner.__doc__ = test.__name__, test.__doc__
    return runner


async def exchange(server: Running, *parts: bytes) -> bytes:
    """Send each part so that the server reads it separately; return all answers until the end."""
    reader, writer = await server.open()
    answers = b""
    for part in parts:
        writer.write(part)
        # The server has read a part once it has answered a later request on another connection.
        await ping(server)
    with contextlib.suppress(OSError):  # the server may have ended it
        writer.write_eof()
    async with asyncio.timeout(WAIT_S):
        while data := await reader.read(1 << 16):
            answers += data
    return answers


async def ping(server: Running) -> None:
    reader, writer = await server.open()
    writer.write(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(WAIT_S):
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


Outcome = tuple[list[int], list[tuple[str, str, bytes]]]
"""Status of each answer, and method, path and body of each request that was served."""


async def outcome(server: Running, site: Site, *parts: bytes) -> Outcome:
    site.requests.clear()
    answers = await exchange(server, *parts)
    served = [each for each in site.requests if each[1] != "/ping"]
    return [int(status) for status in STATUS.findall(answers)], served


async def outcomes(server: Running, site: Site, forms: Mapping[str, Sequence[bytes]]) -> Any:
    """Return the outcome of each form, with its parts in one read and in separate reads."""
    found: dict[tuple[str, str], Outcome] = {}
    for name, parts in forms.items():
        found[name, "in one read"] = await outcome(server, site, b"".join(parts))
        found[name, "in several"] = await outcome(server, site, *parts)
    return found


UPGRADES = {
    "other with a body": b"POST /a HTTP/1.1\r\n" + HOST + OTHER + BODY,
    "other with chunks": b"POST /a HTTP/1.1\r\n" + HOST + OTHER + CHUNKED,
    "other with GET and a body": b"GET /a HTTP/1.1\r\n" + HOST + OTHER + BODY,
    "h2c": b"POST /a HTTP/1.1\r\n" + HOST + OTHER.replace(b"foo", b"h2c") + BODY,
    "several": b"GET /a HTTP/1.1\r\n" + HOST + OTHER.replace(b"foo", b"websocket, foo") + BODY,
    "Connection twice": b"GET /a HTTP/1.1\r\n" + HOST + WEBSOCKET + b"Connection: close\r\n" + BODY,
    "websocket with a body": b"GET /a HTTP/1.1\r\n" + HOST + WEBSOCKET + KEY + VERSION + BODY,
    "websocket by POST": b"POST /a HTTP/1.1\r\n" + HOST + WEBSOCKET + KEY + VERSION + BODY,
    "websocket with chunks": b"GET /a HTTP/1.1\r\n" + HOST + WEBSOCKET + KEY + VERSION + CHUNKED,
}
HANDSHAKES = {
    "without a key": b"GET /a HTTP/1.1\r\n" + HOST + WEBSOCKET + VERSION,
    "wrong version": b"GET /a HTTP/1.1\r\n"
    + HOST
    + WEBSOCKET
    + KEY
    + b"Sec-WebSocket-Version: 8\r\n",
    "of HTTP/1.0": b"GET /a HTTP/1.0\r\n" + HOST + WEBSOCKET + KEY + VERSION,
    "refused by the application": b"GET /a HTTP/1.1\r\n" + HOST + WEBSOCKET + KEY + VERSION,
}


POST = b"POST /a HTTP/1.1\r\n" + HOST
GET = b"GET /a HTTP/1.1\r\n" + HOST

# Refused with 400, and nothing after it is read.
REFUSED = {
    "length and chunks": (POST + BODY + CHUNKED + b"\r\n", EMPTY_CHUNKS + STOLEN),
    "chunks and length": (POST + CHUNKED + BODY + b"\r\n", EMPTY_CHUNKS + STOLEN),
    "two lengths": (POST + b"Content-Length: 0\r\n" + BODY + b"\r\n", STOLEN),
    "two equal lengths": (POST + BODY + BODY + b"\r\n", STOLEN),
    "a list of lengths": (POST + b"Content-Length: 0, 5\r\n\r\n", STOLEN),
    "a negative length": (POST + b"Content-Length: -1\r\n\r\n", STOLEN),
    "a signed length": (POST + b"Content-Length: +5\r\n\r\n", STOLEN),
    "a hexadecimal length": (POST + b"Content-Length: 0x5\r\n\r\n", STOLEN),
    "a length too large": (POST + b"Content-Length: 99999999999999999999\r\n\r\n", STOLEN),
    "a length with a space": (POST + b"Content-Length: 0 5\r\n\r\n", STOLEN),
    "an unknown coding": (POST + b"Transfer-Encoding: xchunked\r\n\r\n", EMPTY_CHUNKS + STOLEN),
    "chunked, then another": (
        POST + b"Transfer-Encoding: chunked, identity\r\n\r\n",
        EMPTY_CHUNKS + STOLEN,
    ),
    "space before the colon": (POST + b"Content-Length : 5\r\n\r\n", STOLEN),
    "chunks, space before the colon": (
        POST + b"Transfer-Encoding : chunked\r\n\r\n",
        EMPTY_CHUNKS + STOLEN,
    ),
    "a folded header": (GET + b"X: 1\r\n Content-Length: 5\r\n\r\n", STOLEN),
    "a folded coding": (POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n", EMPTY_CHUNKS + STOLEN),
    "a line feed alone": (b"GET /a HTTP/1.1\nHost: x\n\n", STOLEN),
    "a carriage return alone": (GET + b"X: 1\rContent-Length: 5\r\n\r\n", STOLEN),
    "a NUL in a header": (GET + b"X: a\x00b\r\n\r\n", STOLEN),
    "a header without a name": (GET + b": 1\r\n\r\n", STOLEN),
    "a chunk size that is none": (POST + CHUNKED + b"\r\n", b"zz\r\n" + STOLEN),
    "a chunk size that overflows": (POST + CHUNKED + b"\r\n", b"fffffffffffffffff\r\n" + STOLEN),
    "a chunk longer than it says": (
        POST + CHUNKED + b"\r\n",
        b"1\r\nabc\r\n" + EMPTY_CHUNKS + STOLEN,
    ),
    "a chunk size with a line feed alone": (POST + CHUNKED + b"\r\n", b"1\na\n0\n\n" + STOLEN),
    "a length behind the body": (
        POST + CHUNKED + b"\r\n",
        b"0\r\nContent-Length: 99\r\n\r\n" + STOLEN,
    ),
    "another version": (b"GET /a HTTP/3.7\r\n" + HOST + b"\r\n", STOLEN),
}

# Accepted with this body; the request after it is read correctly.
TAKEN = {
    "a length": (POST + b"Content-Length: 5\r\n\r\n", b"hello", b"hello"),
    "a body of GET": (GET + BODY + b"\r\n", STOLEN, STOLEN),
    "chunks": (POST + CHUNKED + b"\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    "a chunk extension": (POST + CHUNKED + b"\r\n", b"5;a=b\r\nhello\r\n0\r\n\r\n", b"hello"),
    "a trailer": (POST + CHUNKED + b"\r\n", b"5\r\nhello\r\n0\r\nX: 1\r\n\r\n", b"hello"),
    "a coding in capitals": (
        POST + b"TRANSFER-ENCODING: Chunked\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"hello",
    ),
    "Upgrade without Connection": (
        POST + b"Upgrade: websocket\r\n" + BODY + b"\r\n",
        STOLEN,
        STOLEN,
    ),
    "Connection without Upgrade": (
        POST + b"Connection: Upgrade\r\n" + BODY + b"\r\n",
        STOLEN,
        STOLEN,
    ),
    "empty lines before it": (b"\r\n\r\n" + GET + b"\r\n", b"", b""),
}


@on_both
async def test_an_upgrade_with_a_body_is_refused(server: Running, site: Site) -> None:
    forms = {name: (head + b"\r\n", STOLEN) for name, head in UPGRADES.items()}
    found = await outcomes(server, site, forms)
    assert found == dict.fromkeys(found, ([400], []))
    assert server.limits.refused == {"bad_handshake": len(found)}


@on_both
async def test_an_upgrade_to_anything_else_is_the_last_request(server: Running, site: Site) -> None:
    forms = {
        method: (method.encode() + b" /a HTTP/1.1\r\n" + HOST + OTHER + b"\r\n", STOLEN)
        for method in ("GET", "POST", "OPTIONS")
    }
    for (method, _), found in (await outcomes(server, site, forms)).items():
        assert found == ([200], [(method, "/a", b"")])
    assert b"connection: close\r\n" in await exchange(server, forms["GET"][0])


@on_both
async def test_nothing_is_served_behind_a_refused_handshake(server: Running, site: Site) -> None:
    forms = {name: (head + b"\r\n", STOLEN) for name, head in HANDSHAKES.items()}
    for (name, reads), (statuses, served) in (await outcomes(server, site, forms)).items():
        assert statuses in ([400], [401], [426]), (name, reads)
        assert all(path != "/stolen" for _, path, _ in served), (name, reads)


@on_both
async def test_nothing_is_served_behind_connect(server: Running, site: Site) -> None:
    form = {"connect": (b"CONNECT x:1 HTTP/1.1\r\n" + HOST + b"\r\n", STOLEN)}
    for statuses, served in (await outcomes(server, site, form)).values():
        assert len(statuses) == 1
        assert all(path != "/stolen" for _, path, _ in served)


@on_both
async def test_what_can_be_read_in_two_ways_is_refused(server: Running, site: Site) -> None:
    found = await outcomes(server, site, REFUSED)
    assert found == dict.fromkeys(found, ([400], []))


@on_both
async def test_a_body_is_a_body(server: Running, site: Site) -> None:
    """A body is read as a body, and the request after it as a request."""
    behind = b"GET /next HTTP/1.1\r\n" + HOST + b"\r\n"
    forms = {name: (head, sent, behind) for name, (head, sent, _) in TAKEN.items()}
    found = await outcomes(server, site, forms)
    for name, reads in found:
        head, _, body = TAKEN[name]
        method = "POST" if b"POST" in head else "GET"
        expected = ([200, 200], [(method, "/a", body), ("GET", "/next", b"")])
        assert found[name, reads] == expected, (name, reads)


@on_both
async def test_answers_without_a_body_have_none(server: Running, site: Site) -> None:
    """Answers that must have no body have none: it would be read as the next request's answer."""
    for request_line, size in (
        (b"HEAD /a", b"2"),
        (b"GET /status/304", b"0"),
        (b"GET /status/204", b"0"),
    ):
        first = request_line + b" HTTP/1.1\r\n" + HOST + b"\r\n"
        answers = await exchange(server, first, b"GET /next HTTP/1.1\r\n" + HOST + b"\r\n")
        head, _, rest = answers.partition(b"\r\n\r\n")
        assert b"content-length: " + size in head
        assert b"transfer-encoding" not in head
        assert rest.startswith(b"HTTP/1.1 200 ")


@on_both
async def test_100_is_sent_before_a_body_and_not_before_an_error(
    server: Running, site: Site
) -> None:
    head = POST + b"Expect: 100-continue\r\n"
    found = await outcome(server, site, head + b"Content-Length: 5\r\n\r\n", b"hello")
    assert found == ([100, 200], [("POST", "/a", b"hello")])
    assert await outcome(server, site, head + OTHER + BODY + b"\r\n", STOLEN) == ([400], [])


@on_both
async def test_nothing_is_served_behind_an_error(server: Running, site: Site) -> None:
    """The request before the error is answered; what follows it is not read."""
    form = GET + b"\r\n" + POST + BODY + BODY + b"\r\n" + STOLEN
    assert await outcome(server, site, form) == ([200], [("GET", "/a", b"")])
