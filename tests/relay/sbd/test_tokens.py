"""Tokens, with and without a hook server, and all failures of a hook."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redispipe.errors import LinkLost
from relay.sbd import tokens
from relay.sbd.options import AuthReason
from relay.sbd.tokens import MAX_BODY_BYTES, MAX_HOOK_BYTES, Answer, HookError, Tokens
from tests.support.hook_server import HookServer, hook_server


class Kept:
    """The commands of Redis that tokens use."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.away = False

    async def __call__(self, *words: Any) -> Any:
        if self.away:
            raise LinkLost("redis is away")
        match words:
            case "SET", name, "", "PX", life_ms:
                self.names[name] = life_ms
                return b"OK"
            case "PEXPIRE", name, _:
                return int(name in self.names)
        raise AssertionError(words)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture(scope="module")
def hook() -> Iterator[HookServer]:
    with hook_server() as server:
        yield server


@pytest.fixture
def hooked(kept: Kept, hook: HookServer) -> Iterator[Tokens]:
    yield Tokens(kept, hook.url, 10_000)
    for name in ("status", "reply"):
        hook.__dict__.pop(name, None)
    hook.bodies.clear()


def token_of(answer: Answer) -> str:
    assert (answer.status, answer.content_type, answer.reason) == (200, tokens.JSON, None)
    token = json.loads(answer.body)["authToken"]
    assert isinstance(token, str)
    return token


async def test_without_a_hook_everyone_gets_a_token(kept: Kept) -> None:
    open_to_all = Tokens(kept, "", 10_000)
    first = token_of(await open_to_all.authenticate(b""))
    assert first != token_of(await open_to_all.authenticate(bytes(MAX_BODY_BYTES)))
    assert await open_to_all.admit(b"Bearer " + first.encode()) == first
    assert await open_to_all.admit(None) is None
    assert set(kept.names.values()) == {10_000}


@pytest.mark.parametrize(
    "header",
    [b"Bearer x", b"bearer TOKEN", b"Bearer  TOKEN", b"Bearer ", b"Basic TOKEN", b"TOKEN", b""],
)
@pytest.mark.parametrize("hook_url", ["", "http://hook.example"])
async def test_a_header_has_to_name_a_known_token(kept: Kept, header: bytes, hook_url: str) -> None:
    """A header with an unknown token is refused, even if no token is required."""
    await kept("SET", "sbd:token:TOKEN", "", "PX", 1)
    found = Tokens(kept, hook_url, 10_000)
    answer = await found.admit(header)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.body) == (401, b"Unauthorized")
    assert found.counts == {AuthReason.BAD_TOKEN: 1}
    assert await found.admit(b"Bearer Bearer TOKEN") == "TOKEN"


async def test_with_a_hook_a_token_is_needed(hooked: Tokens, hook: HookServer) -> None:
    for header in (None, "Bearer é".encode()):
        answer = await hooked.admit(header)
        assert isinstance(answer, Answer)
        assert answer.status == 401
    assert token_of(await hooked.authenticate(b"material")) == "from the hook"
    assert hook.bodies == [b"material"]
    assert await hooked.admit(b"Bearer from the hook") == "from the hook"


@pytest.mark.parametrize(
    ("hook_status", "reply", "status", "reason"),
    [
        (201, b'{"authToken": "x"}', 200, None),
        (401, b"", 401, AuthReason.REFUSED),
        (403, b"", 502, AuthReason.HOOK_FAILED),
        (500, b"", 502, AuthReason.HOOK_FAILED),
        (302, b"", 502, AuthReason.HOOK_FAILED),
        (200, b"\xff", 502, AuthReason.HOOK_FAILED),
        (200, b"no json", 500, AuthReason.HOOK_FAILED),
        (200, b"{}", 500, AuthReason.HOOK_FAILED),
        (200, b"[]", 500, AuthReason.HOOK_FAILED),
        (200, b"[" * MAX_HOOK_BYTES, 500, AuthReason.HOOK_FAILED),
        (200, b'{"authToken": 1}', 500, AuthReason.HOOK_FAILED),
        (200, b'{"authToken": ""}', 500, AuthReason.HOOK_FAILED),
        (200, b'{"authToken": "\xc3\xa9"}', 500, AuthReason.HOOK_FAILED),
        (200, b" " * 10_000_000, 502, AuthReason.HOOK_FAILED),
    ],
)
async def test_answers_of_a_hook(
    hooked: Tokens,
    hook: HookServer,
    hook_status: int,
    reply: bytes,
    status: int,
    reason: AuthReason | None,
) -> None:
    hook.status, hook.reply = hook_status, reply
    answer = await hooked.authenticate(b"")
    assert (answer.status, answer.reason) == (status, reason)
    assert hooked.counts == ({reason: 1} if reason else {})


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"\xff" * 50,
        b"HTTP/1.1 x\r\n\r\n",
        CHUNKED + b"-2\r\nx",
        CHUNKED + b"-ffffffffffffffffff\r\nx",
        CHUNKED + b"f\r\nx",
    ],
    ids=["nothing", "noise", "no status", "chunk below 0", "chunk far below 0", "cut off"],
)
async def test_a_hook_that_does_not_speak_http(kept: Kept, wire: bytes) -> None:
    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(wire)
        writer.close()

    async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        answer = await Tokens(kept, f"http://{host}:{port}/", 10_000).authenticate(b"body")
    assert (answer.status, answer.reason) == (502, AuthReason.HOOK_FAILED)


async def test_a_hook_that_hangs_or_is_away(
    hooked: Tokens, kept: Kept, hook: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "HOOK_S", 0.1)
    hook.silent.set()
    assert (await hooked.authenticate(b"")).status == 502
    hook.silent.clear()
    answer = await Tokens(kept, "http://127.0.0.1:9/", 10_000).authenticate(b"")
    assert (answer.status, answer.reason) == (502, AuthReason.HOOK_FAILED)


async def test_a_hook_that_hangs_keeps_no_threads_of_others(
    hooked: Tokens, hook: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hanging hooks block no threads, neither before nor after their time-out.

    Requests beyond the maximum number are refused at once.
    """
    monkeypatch.setattr(tokens, "HOOK_S", 1.0)
    hook.silent.set()
    asking = [asyncio.ensure_future(hooked.authenticate(b"")) for _ in range(2 * tokens.MAX_HOOKS)]
    async with asyncio.timeout(0.8):
        await asyncio.gather(*(asyncio.to_thread(len, "") for _ in range(10)))
        answers = await asyncio.gather(*asking[tokens.MAX_HOOKS :])
        assert {answer.status for answer in answers} == {503}
    answers = await asyncio.gather(*asking[: tokens.MAX_HOOKS])
    assert {answer.status for answer in answers} == {502}
    hook.silent.clear()
    assert (await hooked.authenticate(b"")).status == 200
    hooked.close()


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"]
)
async def test_a_hook_that_sends_a_byte_now_and_then_is_cut_off(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, head: bytes
) -> None:
    monkeypatch.setattr(tokens, "HOOK_S", 0.3)
    over = asyncio.Event()

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await reader.read(65_536)
        writer.close()
        over.set()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        hooked = Tokens(kept, f"http://{host}:{port}/", 10_000)
        async with asyncio.timeout(2):
            assert (await hooked.authenticate(b"body")).status == 502
            await over.wait()


async def test_bad_bodies_and_redis_away(kept: Kept) -> None:
    found = Tokens(kept, "", 10_000)
    answer = await found.authenticate(bytes(MAX_BODY_BYTES + 1))
    assert (answer.status, answer.reason) == (413, AuthReason.TOO_LARGE)
    kept.away = True
    assert (await found.authenticate(b"")).status == 503
    refused = await found.admit(b"Bearer x")
    assert isinstance(refused, Answer)
    assert refused.status == 503
    assert await found.admit(None) is None


async def test_tokens_in_use_are_kept(kept: Kept) -> None:
    await Tokens(kept, "", 10_000).keep(["a", "b", "a"])
    assert set(kept.names) == {"sbd:token:a", "sbd:token:b"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60))
def test_any_reply_is_a_token_or_is_refused(reply: bytes) -> None:
    try:
        token = tokens._token_of(reply)
    except HookError as error:
        assert error.answer.status in (500, 502)
    else:
        assert json.loads(reply)["authToken"] == token
