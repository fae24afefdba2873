"""Callers over sockets that send malformed calls to handlers, or vanish."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from peer.mux import MuxSession, StreamFailedError, connect
from peer.rpc import RpcPeer, RpcStreamError, Service
from peer.rpc.service import RawCall
from proto.mux.frames import ack, data
from tests.support.mux_server import MuxServer, mux_server
from tests.support.raw_mux import raw_mux
from tests.support.waiting import eventually

TIMEOUT_S = 60.0
WINDOW = 1 << 20

pytestmark = pytest.mark.asyncio(loop_scope="module")
service = Service()
waiting: list[str] = []

Params = dict[str, Any]


@service.handler("echo")
async def echo(params: Params) -> Params:
    return params


@service.handler("wait")
async def wait(params: Params) -> None:
    waiting.append("wait")
    try:
        await asyncio.Event().wait()
    finally:
        waiting.remove("wait")


@service.handler("gather", takes_stream=True)
async def gather(messages: AsyncIterator[Params]) -> int:
    waiting.append("gather")
    try:
        return sum([1 async for _ in messages])
    finally:
        waiting.remove("gather")


@service.raw("broken")
async def broken(params: Params, call: RawCall) -> None:
    await call.answer({})
    await call.write(b"half of ")
    raise ValueError("secret")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[MuxServer]:
    async with mux_server(service.serve) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def session(server: MuxServer) -> AsyncIterator[MuxSession]:
    """Return a connection, and check afterwards that it still serves calls."""
    async with asyncio.timeout(TIMEOUT_S), connect(f"ws://127.0.0.1:{server.port}/") as session:
        ours = await server.session()
        yield session
        assert await RpcPeer(session).call("echo", {"a": 1}) == {"a": 1}
        await eventually(lambda: not len(ours.mux))


BAD = {
    "no JSON": (b"GET / HTTP/1.1\r\n", -32700),
    "no object": (b"[1]", -32700),
    "broken": (b'{"method":"echo",}', -32700),
    "no UTF-8": (b'{"method":"\xff"}', -32700),
    "NUL": (b'{"method":"echo"}\0', -32700),
    "not a number": (b'{"method":"echo","params":{"a":NaN}}', -32700),
    "many digits": (b'{"method":"echo","params":{"a":%s}}' % (b"1" * 5000), -32700),
    "deep": (b'{"method":"echo","params":' + b'{"a":' * 100, -32700),
    "deep lists": (b'{"method":"echo","params":{"a":' + b"[" * 100, -32700),
    "a string without end": (b'{"method":"' + b"a" * (WINDOW + 1), -32003),
    "an object without end": (b'{"method":"echo",' + b" " * WINDOW, -32003),
    "no method": (b'{"jsonrpc":"2.0","id":null}', -32600),
    "a method that is a number": (b'{"method":1}', -32600),
    "params that are a list": (b'{"method":"echo","params":[1]}', -32602),
    "unknown": (b'{"method":"none"}', -32601),
    "unknown, with a name that is no text": (b'{"method":"\\ud800"}', -32601),
    "half a message": (b'{"method":"echo"', -32014),
    "nothing": (b"", -32014),
}


@pytest.mark.parametrize(("sent", "code"), BAD.values(), ids=BAD)
async def test_what_is_no_call(session: MuxSession, sent: bytes, code: int) -> None:
    async with session.open() as stream:
        await stream.write(sent)
        await stream.end()
        found = json.loads(await stream.read_all())
    assert found["error"]["code"] == code
    assert found["error"]["data"]["data"]["stack"]


async def test_a_message_without_end_is_not_read_on(session: MuxSession) -> None:
    """The server stops a caller while it sends an endless message."""
    async with session.open() as stream:
        with pytest.raises(StreamFailedError, match="writing: peer"):
            await stream.write(b'{"method":"' + b"a" * (8 * WINDOW))
        found = json.loads(await stream.read_all())
    assert found["error"]["code"] == -32003


async def test_a_bad_message_behind_good_ones(session: MuxSession) -> None:
    async with session.open() as stream:
        await stream.write(b'{"method":"gather"}' * 3 + b'{"method":')
        await stream.end()
        found = json.loads(await stream.read_all())
    assert found["error"]["code"] == -32700
    await eventually(lambda: not waiting)


async def test_half_a_character_is_sent_back(session: MuxSession) -> None:
    """A lone surrogate is echoed; JavaScript allows such texts and escapes them."""
    assert await RpcPeer(session).call("echo", {"text": "\ud800"}) == {"text": "\ud800"}


async def test_bytes_that_break_off(session: MuxSession) -> None:
    """A raw handler that fails ends its stream with an error, not like a complete answer."""
    with pytest.raises(RpcStreamError):
        async with RpcPeer(session).raw("broken") as call:
            async for _ in call:
                pass


@pytest.mark.parametrize("method", ["wait", "gather"])
@pytest.mark.parametrize("count", [1, 100])
async def test_callers_that_vanish(server: MuxServer, method: str, count: int) -> None:
    """The handlers of callers that vanish are cancelled."""
    client = await raw_mux(server.server)
    session = await server.session()
    request = b'{"method":"%s"}' % method.encode()
    for number in range(count):
        prefix = (number * 2 | 0x4000).to_bytes(2, "big")
        client.send(ack(prefix, WINDOW).hex(), data(prefix, request).hex())
    await eventually(lambda: len(waiting) == count)
    client.vanish()
    await session.ended.wait()
    await eventually(lambda: not waiting)
