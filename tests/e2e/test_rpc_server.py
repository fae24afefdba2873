"""This project's handlers and calls back, with the client of the reference, `@matrixai/rpc`.

The client runs in Node.js.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from peer.mux import MuxSession
from peer.rpc import PublicError, RpcPeer, RpcRemoteError, RpcTimeoutError, Service
from peer.rpc.service import RawCall
from tests.support.certificates import make_certificate
from tests.support.mux_server import MuxServer, mux_server
from tests.support.node import PEERS, JsClient, JsError, js_client, node
from tests.support.relay_process import ROOT
from tests.support.waiting import eventually

TIMEOUT_S = 60.0
REMOTE = -32006

service = Service()
cancelled: list[str] = []
started = asyncio.Event()
pytestmark = pytest.mark.asyncio(loop_scope="module")

Params = dict[str, Any]


@service.handler("echo")
async def echo(params: Params) -> Params:
    return params


@service.handler("count")
async def count(params: Params) -> AsyncIterator[Params]:
    for number in range(1, params["to"] + 1):
        yield {"i": number}


@service.handler("endless")
async def endless(params: Params) -> AsyncIterator[Params]:
    try:
        yield {"i": 1}
        yield {"i": 2}
        await asyncio.Event().wait()
    finally:
        cancelled.append("endless")


@service.handler("sum", takes_stream=True)
async def sum_(messages: AsyncIterator[Params]) -> Params:
    return {"sum": sum([each["value"] async for each in messages])}


@service.handler("scale", takes_stream=True)
async def scale(messages: AsyncIterator[Params]) -> AsyncIterator[Params]:
    async for each in messages:
        yield {"i": 10 * each["i"]}


@service.raw("raw")
async def raw(params: Params, call: RawCall) -> None:
    await call.answer({"header": params})
    async for data in call:
        await call.write(data.upper())


@service.handler("public")
async def public(params: Params) -> None:
    raise PublicError("not you", type="RangeError")


@service.handler("secret")
async def secret(params: Params) -> None:
    raise ZeroDivisionError("secret")


@service.handler("late")
async def late(params: Params) -> AsyncIterator[Params]:
    yield {"i": 1}
    raise PublicError("no more", type="TypeError")


@service.handler("wait")
async def wait(params: Params) -> None:
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.append("wait")


@service.handler("short", timeout_s=0.2)
async def short(params: Params) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        cancelled.append("short")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("rpc"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(certificate: tuple[Path, Path]) -> AsyncIterator[MuxServer]:
    async with mux_server(service.serve, certificate) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def js(certificate: tuple[Path, Path]) -> AsyncIterator[JsClient]:
    async with js_client("rpc_client.js", str(certificate[0])) as client:
        yield client


class Connection:
    """A connection of Node.js, and the server's side of it."""

    def __init__(self, js: JsClient, name: str, session: MuxSession) -> None:
        self.peer = RpcPeer(session)
        self._js = js
        self._name = name

    async def ask(self, verb: str, **given: Any) -> Any:
        return await self._js.ask(verb, on=self._name, **given)


numbers = itertools.count()


@pytest_asyncio.fixture(loop_scope="module")
async def connection(js: JsClient, server: MuxServer) -> AsyncIterator[Connection]:
    """Open a connection for one test; check afterwards that neither side has a stream left."""
    cancelled.clear()
    started.clear()
    name = f"c{next(numbers)}"
    async with asyncio.timeout(TIMEOUT_S):
        await js.ask("connect", on=name, port=server.port)
        connection = Connection(js, name, await server.session())
        yield connection
        await eventually(lambda: not len(connection.peer.session.mux))
        assert await connection.ask("live") == 0
        await connection.ask("stop")


# --- the five kinds -------------------------------------------------------------------------------


async def test_unary(connection: Connection) -> None:
    for number in range(20):
        found = await connection.ask("unary", method="echo", params={"text": "å", "n": number})
        assert found == {"text": "å", "n": number}


async def test_unary_at_once(connection: Connection) -> None:
    found = await asyncio.gather(
        *(connection.ask("unary", method="echo", params={"n": n}) for n in range(100))
    )
    assert found == [{"n": n} for n in range(100)]


async def test_a_large_message(connection: Connection) -> None:
    """A message that is larger than the grant arrives in several frames."""
    params = {"text": "x" * 700_000}
    assert await connection.ask("unary", method="echo", params=params) == params


async def test_server_stream(connection: Connection) -> None:
    found = await connection.ask("server", method="count", params={"to": 100})
    assert [each["i"] for each in found] == [*range(1, 101)]
    assert await connection.ask("server", method="count", params={"to": 0}) == []


async def test_client_stream(connection: Connection) -> None:
    for size in (1, 3, 100):
        messages = [{"value": number} for number in range(1, size + 1)]
        found = await connection.ask("client", method="sum", messages=messages)
        assert found == {"sum": size * (size + 1) // 2}


async def test_duplex(connection: Connection) -> None:
    messages = [{"i": number} for number in range(1, 51)]
    found = await connection.ask("duplex", method="scale", messages=messages)
    assert [each["i"] for each in found] == [10 * number for number in range(1, 51)]


async def test_raw(connection: Connection) -> None:
    found = await connection.ask("raw", method="raw", params={"name": "h"}, parts=["raw1", "raw2"])
    assert found == {"answer": {"header": {"name": "h"}}, "text": "RAW1RAW2"}


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["unary", "server"])
@pytest.mark.parametrize(
    ("method", "type_", "message"),
    [
        ("public", "RangeError", "not you"),
        ("secret", "Error", "the handler failed"),
        ("none", "Error", "there is no method 'none'"),
    ],
)
async def test_our_errors_arrive(
    connection: Connection, verb: str, method: str, type_: str, message: str
) -> None:
    """Errors arrive as remote errors whose cause is the handler's error (R3, R7)."""
    with pytest.raises(JsError) as failed:
        await connection.ask(verb, method=method, params={})
    found = failed.value.found
    assert (found["name"], found["code"], found["command"]) == ("ErrorRPCRemote", REMOTE, method)
    assert (found["cause"]["name"], found["cause"]["message"]) == (type_, message)


async def test_an_error_behind_a_result(connection: Connection) -> None:
    with pytest.raises(JsError) as failed:
        await connection.ask("server", method="late", params={})
    assert failed.value.found["cause"]["message"] == "no more"


async def test_an_error_of_a_raw_call(connection: Connection) -> None:
    with pytest.raises(JsError) as failed:
        await connection.ask("raw", method="none", params={}, parts=[])
    assert failed.value.found["cause"]["message"] == "there is no method 'none'"


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        (["no json"], -32700),
        (["[1]"], -32700),
        (['{"jsonrpc":"2.0","id":null}'], -32600),
        (['{"method":"echo","params":[1]}'], -32602),
        ([], -32014),
    ],
)
async def test_what_is_no_call_is_answered(
    connection: Connection, texts: list[str], code: int
) -> None:
    """Invalid calls are answered; the reference never answers them (R4 the other way)."""
    answer = json.loads(await connection.ask("texts", texts=texts))
    assert answer["error"]["code"] == code


# --- time, and ends -------------------------------------------------------------------------------


async def test_a_handler_without_time(connection: Connection) -> None:
    with pytest.raises(JsError) as failed:
        await connection.ask("unary", method="short", params={})
    assert failed.value.found["cause"]["message"] == "no response within 200 ms"
    assert cancelled == ["short"]


async def test_a_caller_without_time(connection: Connection) -> None:
    """The caller sends its time-out, so the handler ends as soon as the caller does."""
    with pytest.raises(JsError) as failed:
        await connection.ask("unary", method="wait", params={}, timer=200)
    assert failed.value.found["cause"]["message"] == "no response within 200 ms"
    assert cancelled == ["wait"]


async def test_a_caller_that_gives_up(js: JsClient, connection: Connection) -> None:
    """A caller gives up through its stream's `cancel`, which the program has to bind (R6)."""
    await connection.ask("begin", method="wait", params={}, **{"as": "call"})
    await started.wait()
    await js.ask("giveUp", **{"as": "call"})
    await eventually(lambda: cancelled == ["wait"])


async def test_a_call_given_up_before_it_began(connection: Connection) -> None:
    with pytest.raises(JsError, match="too late"):
        await connection.ask("unary", method="wait", params={}, aborted=True)


async def test_a_stream_that_is_left_early(connection: Connection) -> None:
    """A handler is cancelled when its caller leaves a stream early.

    No bytes are on their way, as they may end the caller's process (G5).
    """
    found = await connection.ask("first", method="endless", params={}, count=2)
    assert found == [{"i": 1}, {"i": 2}]
    await eventually(lambda: cancelled == ["endless"])


# --- the program of the documentation -------------------------------------------------------------


async def test_the_program_of_the_howto(tmp_path: Path) -> None:
    page = (ROOT / "docs/howto/streams.md").read_text()
    program = tmp_path / "call.js"
    program.write_text(page.partition("```js\n")[2].partition("```")[0])
    confirmed: list[Params] = []
    calling = Service()

    @calling.handler("echo")
    async def echo(params: Params) -> Params:
        peer = RpcPeer(await running.session())
        confirmed.append(await peer.call("confirm", params))
        return params

    async with asyncio.timeout(TIMEOUT_S), mux_server(calling.serve) as running:
        process = await asyncio.create_subprocess_exec(
            node(),
            str(program),
            f"ws://127.0.0.1:{running.port}/any/path",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # the libraries log there
            env={"NODE_PATH": str(PEERS / "node_modules")},
        )
        output, _ = await process.communicate()
    assert (output, process.returncode) == (b"{ text: 'hi' }\n", 0)
    assert confirmed == [{"confirmed": True}]


# --- calls back -----------------------------------------------------------------------------------


async def test_we_call_back(connection: Connection) -> None:
    peer = connection.peer
    assert await peer.call("add", {"a": 1, "b": 2}) == {"sum": 3}
    assert [each["i"] async for each in peer.stream("count", {"to": 20})] == [*range(1, 21)]
    with pytest.raises(RpcRemoteError, match="not me") as failed:
        await peer.call("fail")
    assert failed.value.type == "RangeError"
    assert str(failed.value.__cause__) == "inner"


async def test_we_do_not_wait_for_ever(js: JsClient, connection: Connection) -> None:
    before = await js.ask("aborted")
    with pytest.raises(RpcTimeoutError):
        await connection.peer.call("wait", timeout_s=0.2)
    await eventually(lambda: js.ask("aborted"))
    assert await js.ask("aborted") == before + 1


async def test_a_caller_is_called_back(js: JsClient, certificate: tuple[Path, Path]) -> None:
    """A handler calls its caller within the call, over the connection that the call came on."""
    asking = Service()
    peers: list[RpcPeer] = []

    @asking.handler("confirmed")
    async def confirmed(params: Params) -> Params:
        return {"asked": await peers[0].call("add", params)}

    async with asyncio.timeout(TIMEOUT_S), mux_server(asking.serve, certificate) as server:
        await js.ask("connect", on="back", port=server.port)
        peers.append(RpcPeer(await server.session()))
        found = await js.ask("unary", on="back", method="confirmed", params={"a": 2, "b": 3})
        assert found == {"asked": {"sum": 5}}
        await js.ask("stop", on="back")
