"""Twins of a relay's registry over HTTP: servers that answer, do not answer, or lie."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from peer.errors import TwinsAwayError
from peer.twin_sources.rest import MAX_ANSWER_BYTES, RestTwins
from peer.twins import Twin
from proto.identity import ss58
from tests.support.identities import twin
from tests.support.redis_servers import free_port

JSON = "application/json"
PROBLEM = "application/problem+json"

SEVEN = Twin(7, twin(7).account, twin(7).encryption_key.public, ("a.example", "b.example"))
SHOWN = {
    "id": 7,
    "account": ss58.encode(SEVEN.account),
    "pk": f"0x{twin(7).encryption_key.public.hex()}",
    "relays": ["b.example", "a.example"],
}


class Registry(http.server.ThreadingHTTPServer):
    """Answers every request in one way; `asked` has the paths."""

    def __init__(self, status: int, kind: str, body: bytes, keep: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = (status, kind, body)
        self.keep = keep
        self.asked: list[str] = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        status, kind, body = self.server.answer
        self.server.asked.append(self.path)
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = not self.server.keep

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@contextlib.contextmanager
def registry(
    answer: Any, status: int = 200, kind: str = JSON, keep: bool = True
) -> Iterator[Registry]:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    server = Registry(status, kind, body, keep)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.asynccontextmanager
async def opened(url: str) -> Any:
    source = RestTwins(url)
    try:
        yield source
    finally:
        await source.aclose()


@pytest.mark.parametrize("suffix", ["", "/", "/api/v1/twins", "/api/v1/twins/"])
async def test_a_twin_by_id_and_by_account(suffix: str) -> None:
    with registry(SHOWN) as server:
        async with opened(server.url + suffix) as source:
            assert await source.by_id(7) == SEVEN
            assert await source.by_account(SEVEN.account) == SEVEN
        assert server.asked == [
            "/api/v1/twins/7",
            f"/api/v1/twins?account=0x{SEVEN.account.hex()}",
        ]
        assert server.connections == 1


async def test_a_connection_that_was_closed_meanwhile_is_made_again() -> None:
    with registry(SHOWN, keep=False) as server:
        async with opened(server.url) as source:
            for _ in range(3):
                assert await source.by_id(7) == SEVEN
        assert server.connections == 3


async def test_no_such_twin_is_an_answer() -> None:
    with registry({"status": 404}, 404, PROBLEM) as server:
        async with opened(server.url) as source:
            assert await source.by_id(7) is None
            assert await source.by_account(SEVEN.account) is None


@pytest.mark.parametrize(
    ("answer", "status", "kind", "text"),
    [
        (b"<h1>Not Found</h1>", 404, "text/html", "/api/v1/twins answers with status 404"),
        (b"", 400, "text/html", "answers with status 400"),
        ({"status": 503}, 503, PROBLEM, "answers with status 503"),
        (b"<html>", 200, "text/html", "not a twin"),
        ([], 200, JSON, "not a twin"),
        ({**SHOWN, "account": "0x00"}, 200, JSON, "not a twin: account: "),
        ({**SHOWN, "pk": "0x00"}, 200, JSON, "not a twin: pk: "),
        ({**SHOWN, "id": 8}, 200, JSON, "answers with another twin"),
        (bytes(MAX_ANSWER_BYTES + 1), 200, JSON, f"answer of more than {MAX_ANSWER_BYTES} bytes"),
    ],
)
async def test_everything_else_says_nothing_of_the_twin(
    answer: Any, status: int, kind: str, text: str
) -> None:
    with registry(answer, status, kind) as server:
        async with opened(server.url) as source:
            with pytest.raises(TwinsAwayError, match=r"^twins of 127\.0\.0\.1: ") as caught:
                await source.by_id(7)
    assert text in str(caught.value)


async def test_another_account_than_the_one_asked_for_is_refused() -> None:
    with registry(SHOWN) as server:
        async with opened(server.url) as source:
            with pytest.raises(TwinsAwayError, match="answers with another twin"):
                await source.by_account(twin(8).account)


async def test_nobody_there() -> None:
    async with opened(f"http://127.0.0.1:{free_port()}") as source:
        with pytest.raises(TwinsAwayError, match="Connection refused"):
            await source.by_id(7)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example", "http://", "http://a.example?x", "http://a:b", "http://a..b",
        "http://a/\u00e9",
    ],
)  # fmt: skip
def test_no_address(url: str) -> None:
    with pytest.raises(ValueError):
        RestTwins(url)
