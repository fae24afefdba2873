"""This project's caller and handlers at the server of the reference, `@matrixai/rpc` in Node.js."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from peer.rpc import (
    PublicError,
    RpcPeer,
    RpcRemoteError,
    RpcStreamError,
    RpcTimeoutError,
    Service,
    connect,
)
from tests.support.certificates import make_certificate
from tests.support.node import js_server

TIMEOUT_S = 60.0
service = Service()


@service.handler("add")
async def add(params: dict[str, Any]) -> dict[str, Any]:
    return {"sum": params["a"] + params["b"]}


@service.handler("refuse")
async def refuse(params: dict[str, Any]) -> None:
    raise PublicError("not you", type="RangeError")


@service.handler("wait")
async def wait(params: dict[str, Any]) -> None:
    await asyncio.Event().wait()


@service.handler("break")
async def break_(params: dict[str, Any]) -> None:
    raise ZeroDivisionError("secret")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("rpc"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def peer(certificate: tuple[Path, Path]) -> AsyncIterator[RpcPeer]:
    """Connect to a running server, which may call `service`."""
    tls = ssl.create_default_context(cafile=str(certificate[0]))
    async with (
        js_server("rpc_server.js", certificate) as url,
        connect(url, service, tls=tls) as peer,
    ):
        yield peer


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def numbers(count: int, name: str) -> AsyncIterator[dict[str, Any]]:
    for number in range(1, count + 1):
        yield {name: number}


async def test_unary(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        for number in range(20):
            assert await peer.call("echo", {"text": "å", "n": number}) == {"text": "å", "n": number}


async def test_unary_at_once(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        found = await asyncio.gather(*(peer.call("echo", {"n": n}) for n in range(100)))
        assert found == [{"n": n} for n in range(100)]


async def test_server_stream(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        assert [each["i"] async for each in peer.stream("count", {"to": 50})] == [*range(1, 51)]


async def test_a_stream_that_is_left_early(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        results = peer.stream("count", {"to": 1_000_000})
        assert await anext(results) == {"i": 1}
        await results.aclose()
        assert await peer.call("echo", {"a": 1}) == {"a": 1}


async def test_client_stream(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        for count in (1, 3, 100):
            total = count * (count + 1) // 2
            assert await peer.send("sum", numbers(count, "value")) == {"sum": total}


async def test_duplex(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        found = [each["i"] async for each in peer.duplex("duplex", numbers(50, "i"))]
        assert found == [10 * number for number in range(1, 51)]


async def test_raw(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S), peer.raw("raw", {"name": "h"}) as call:
        assert call.answer == {"header": {"name": "h"}}
        await call.write(b"RAW1")
        await call.write(b"RAW2")
        await call.end()
        assert b"".join([data async for data in call]) == b"RAW1RAW2"


async def test_an_error(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(RpcRemoteError, match="boom") as failed:
            await peer.call("fail")
        assert failed.value.type == "TypeError"


async def test_a_method_that_there_is_not(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(RpcStreamError):
            await peer.call("nosuch")


async def test_a_call_that_takes_too_long(peer: RpcPeer) -> None:
    """A call times out if its handler calls one of ours that never answers."""
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(RpcTimeoutError, match="back: no response within 500 ms"):
            await peer.call("back", {"method": "wait", "params": {}}, timeout_s=0.5)


async def test_we_are_called(peer: RpcPeer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        found = await peer.call("back", {"method": "add", "params": {"a": 1, "b": 2}})
        assert found == {"sum": 3}


@pytest.mark.parametrize(
    ("method", "type_", "message"),
    [
        ("refuse", "RangeError", "not you"),
        ("break", "Error", "the handler failed"),
        ("none", "Error", "there is no method 'none'"),
    ],
)
async def test_our_errors_arrive(peer: RpcPeer, method: str, type_: str, message: str) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        found = await peer.call("back", {"method": method, "params": {}})
        assert found == {"failed": {"type": type_, "message": message}}
