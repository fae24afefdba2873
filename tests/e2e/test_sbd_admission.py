"""Admission of clients: tokens, hook servers that hang, lie or send too much, capacity and time."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from proto.sbd import frames
from tests.e2e.conftest import _shared
from tests.proto.sbd.pairs import Identity
from tests.support.hook_server import HookServer, hook_server
from tests.support.raw_http import upgrade
from tests.support.relay_process import RelayProcess, free_port
from tests.support.rmb_client import session
from tests.support.sbd_client import RawClient
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

NUMBERS = itertools.count(30_000)
OWN_PORT = free_port()
MAX_CLIENTS = 30
IDLE_S = 1.5
TOKEN = {"Authorization": "Bearer from the hook"}


@pytest.fixture(scope="module")
def hook() -> Iterator[HookServer]:
    with hook_server() as server:
        yield server


@pytest.fixture(scope="module")
def sbd(
    tmp_path_factory: pytest.TempPathFactory, data_template: Path, hook: HookServer
) -> Iterator[RelayProcess]:
    """Start two workers that ask a hook server, with a low capacity and short time-outs."""
    settings = {
        "sbd.enabled": "true",
        "sbd.hook_url": hook.url,
        "sbd.idle_ms": str(int(IDLE_S * 1000)),
        "sbd.max_clients": str(MAX_CLIENTS),
        "sbd.listen": f"127.0.0.1:{OWN_PORT}",
    }
    yield from _shared(tmp_path_factory, data_template, processes=2, settings=settings)


@pytest.fixture(autouse=True)
async def token(sbd: RelayProcess, hook: HookServer) -> None:
    """Begin each test with a hook that issues a token, and have the token issued."""
    hook.status, hook.reply = 200, b'{"authToken": "from the hook"}'
    assert await asyncio.to_thread(authenticate, sbd) == (200, hook.reply)


def authenticate(relay: RelayProcess, body: bytes = b"material") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", relay.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("PUT", "/authenticate", body)
        answer = connection.getresponse()
        return answer.status, answer.read()


def client(relay: RelayProcess) -> RawClient:
    identity = Identity(next(NUMBERS))
    return RawClient(f"ws://127.0.0.1:{relay.port}", identity, additional_headers=TOKEN)


def failures(relay: RelayProcess) -> Counter[str]:
    return Counter(
        {
            name.removeprefix("sbd_auth_failures_"): int(relay.counted(name))
            for name in {series.partition("{")[0] for series in relay.metrics()}
            if name.startswith("sbd_auth_failures_")
        }
    )


# --- replies of a hook ------------------------------------------------------------------------


async def test_what_a_hook_may_answer(sbd: RelayProcess, hook: HookServer) -> None:
    """Each answer of the hook gives the client its status and is counted."""
    before = failures(sbd)
    for status, reply, answer in (
        (401, b"", 401),
        (403, b"", 502),
        (500, b'{"authToken": "x"}', 502),
        (302, b"", 502),
        (200, b"\xff", 502),
        (200, b"no json", 500),
        (200, b'{"authToken": 1}', 500),
        (200, b'{"token": "x"}', 500),
        (200, b'{"authToken": "' + b"x" * 1_025 + b'"}', 500),
        (200, b" " * 10_000_000, 502),
        (200, b'{"authToken": "' + b"x" * 10_000_000 + b'"}', 502),
        (201, b'{"authToken": "one word"}', 200),
        (200, b'{"authToken": "from the hook", "more": [1]}', 200),
    ):
        hook.status, hook.reply = status, reply
        found, body = await asyncio.to_thread(authenticate, sbd)
        assert found == answer, (status, reply[:40])
        if answer == 200:
            assert list(json.loads(body)) == ["authToken"]
        else:
            assert len(body) < 200
    expected = Counter({"refused_total": 1, "hook_failed_total": 10})
    await eventually(lambda: failures(sbd) - before == expected, what=f"{expected}")


async def test_a_hook_that_hangs_costs_nobody_else_anything(
    sbd: RelayProcess, hook: HookServer
) -> None:
    """A hook that hangs delays neither clients with a token nor RMB sessions.

    Requests beyond the bound are refused.
    """
    one, two = fresh_twins(2)
    hook.silent.set()
    asking = [asyncio.ensure_future(asyncio.to_thread(authenticate, sbd)) for _ in range(5)]
    try:
        await eventually(lambda: len(hook.bodies) >= 6)
        async with asyncio.timeout(5), client(sbd) as first, client(sbd) as second:
            await first.forward(second.key, b"hello")
            assert await second.receive() == frames.Forward(first.key, b"hello")
            async with session(sbd.url, one) as sender, session(sbd.url, two) as receiver:
                await sender.request(receiver.key, b"hello")
                assert (await receiver.receive()).plain == b"hello"
        assert not any(task.done() for task in asking)
    finally:
        hook.silent.clear()
        hook.ended.set()
        answers = await asyncio.gather(*asking)
        hook.ended.clear()
    assert {status for status, _ in answers} == {502}


# --- tokens -----------------------------------------------------------------------------------


async def test_the_order_in_which_a_handshake_is_judged(sbd: RelayProcess) -> None:
    """A handshake is checked for the path's form, then the token, then the key."""
    key = frames.path_of_key(Identity(next(NUMBERS)).key)
    good, bad = "Authorization: Bearer from the hook\r\n", "Authorization: Bearer x\r\n"
    before = failures(sbd)
    for target, header, status in (
        ("/a/b", bad, 404),
        ("/", bad, 404),
        ("/authenticate", bad, 405),
        ("/bad-pubkey-path", bad, 401),
        ("/bad-pubkey-path", good, 400),
        (f"/{key}", "", 401),
        (f"/{key}", bad, 401),
        (f"/{key}", "Authorization: Bearer \u00e9\r\n", 401),  # counts as absent
        (f"/{key}", "Authorization: from the hook\r\n", 401),
        (f"/{key}", good.replace("Bearer ", "Bearer Bearer "), 101),
        (f"/{key}", good, 101),
    ):
        assert (await upgrade(OWN_PORT, target, header)).status == status, (target, header)
    for reason, count in (("bad_token_total", 3), ("no_token_total", 2)):
        expected = before[reason] + count
        await eventually(
            lambda reason=reason, expected=expected: failures(sbd)[reason] == expected, what=reason
        )


# --- time and room ----------------------------------------------------------------------------


async def test_silence_and_handshakes_that_do_not_end(sbd: RelayProcess) -> None:
    """Pings do not count as messages; `keep` does, but does not extend a handshake's time."""
    ends = {
        reason: sbd.counted(f"sbd_ended_{reason}_total") for reason in ("idle", "handshake_timeout")
    }

    async def silent(one: RawClient, *, pings: bool) -> None:
        end = asyncio.ensure_future(one.ended())
        while pings and not end.done():
            with contextlib.suppress(ConnectionClosed):
                await one.ping()
            await asyncio.sleep(0.1)
        assert await end is None

    async def stays(one: RawClient) -> None:
        for _ in range(8):
            await asyncio.sleep(IDLE_S / 4)
            await one.send(frames.KEEP_ALIVE)
        await one.forward(one.key, b"still here")
        assert await one.receive() == frames.Forward(one.key, b"still here")

    async def dawdles(one: RawClient) -> None:
        end = asyncio.ensure_future(one.receive())
        with contextlib.suppress(ConnectionClosed):
            while True:
                await one.send(frames.KEEP_ALIVE)
                await asyncio.sleep(0.1)
        with pytest.raises(ConnectionClosed):
            await end

    async with (
        client(sbd) as one,
        client(sbd) as two,
        client(sbd) as three,
        client(sbd).opened() as four,
        client(sbd).opened() as five,
    ):
        await five.challenge()
        async with asyncio.timeout(3 * IDLE_S):
            await asyncio.gather(
                silent(one, pings=True),
                silent(two, pings=False),
                stays(three),
                four.challenge(),
                dawdles(five),
            )
            assert await four.ended() is None
    for reason, before in ends.items():
        await eventually(
            lambda reason=reason, before=before: (
                sbd.counted(f"sbd_ended_{reason}_total") == before + 2
            )
        )


async def test_beyond_the_capacity_connections_end_at_once(sbd: RelayProcess) -> None:
    """Connections up to the capacity are served and stay; those beyond it end at once."""
    before = sbd.counted("sbd_ended_capacity_total")
    async with contextlib.AsyncExitStack() as stack:
        served: list[RawClient] = []
        refused = 0

        async def come() -> None:
            nonlocal refused
            one = await stack.enter_async_context(client(sbd).opened())
            try:
                await one.sign_in()
            except ConnectionClosed:
                assert await one.ended() is None
                refused += 1
            else:
                served.append(one)

        await asyncio.gather(*(come() for _ in range(2 * MAX_CLIENTS + 10)))
        assert refused >= 10
        for one in served[-5:]:
            await one.forward(one.key, b"here")
            assert await one.receive() == frames.Forward(one.key, b"here")
        await eventually(lambda: sbd.counted("sbd_ended_capacity_total") == before + refused)
    await eventually(lambda: sbd.counted("sbd_connections") == 0)
    await asyncio.to_thread(authenticate, sbd)  # the token may have expired unused
    async with client(sbd) as one:  # there is capacity again
        await one.forward(one.key, b"")
