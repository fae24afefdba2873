"""Twins of the chain at a real relay: signing in, live changes, look-ups in a crowd."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin
from tests.support.on_chain import (
    ALIVE,
    chain_relay,
    height,
    let_in,
    sign_in,
    wait_for_follower,
)
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.waiting import eventually

BLOCK_S = 0.25
FIRST, COUNT = 40_001, 1200
LIVE_S = 5.0
"""Seconds after its block until every worker knows a change, at most; normally below one second."""

UNKNOWN_S = 4.0
"""Seconds; less than the time for which "no such twin" is cached where no event arrives."""

ELSEWHERE = "elsewhere.example"
QUERY = "state_queryStorageAt"

_numbers = iter(range(FIRST, FIRST + COUNT))


def fresh(count: int) -> list[Any]:
    """Return twins of the chain that no other test has used."""
    return [twin(next(_numbers)) for _ in range(count)]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Devchain]:
    """Start a node that makes blocks by itself."""
    twins = [twin(number) for number in range(FIRST, FIRST + COUNT)]
    with running_devchain(tmp_path_factory.mktemp("chain"), twins, block_time_s=BLOCK_S) as node:
        yield node


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory, chain: Devchain) -> Iterator[RelayProcess]:
    """Start a relay that follows the chain, with its Celery workers."""
    server = start_valkey(tmp_path_factory.mktemp("redis"), append_fsync="no")
    started = chain_relay(tmp_path_factory.mktemp("relay"), server, chain)
    try:
        wait_for_follower(started.start())
        yield started
    finally:
        started.stop()
        server.remove()


def federated(relay: RelayProcess) -> float:
    return relay.counted("relay_messages_federated_total")


async def test_twins_of_the_chain_talk(relay: RelayProcess) -> None:
    one, two = fresh(2)
    async with session(relay.url, one) as here, session(relay.url, two) as there:
        await here.request(there.key, b"hello")
        assert (await there.receive()).plain == b"hello"
        await eventually(lambda: relay.counted("relay_chain_queries_total") > 0)
    status, text = await sign_in(relay, twin(FIRST + COUNT + 5))
    assert (status, text) == (401, f"twin not found {FIRST + COUNT + 5}")


async def test_a_new_twin_signs_in_at_once(relay: RelayProcess, chain: Devchain) -> None:
    newcomer = twin(FIRST + COUNT + 100)
    assert not await let_in(relay, newcomer)
    chain.put_twin(newcomer)
    await eventually(lambda: let_in(relay, newcomer), UNKNOWN_S)


async def test_a_change_is_seen_live(relay: RelayProcess, chain: Devchain) -> None:
    one, two = fresh(2)
    async with session(relay.url, one) as sender:
        await sender.request((two.id, None), b"stays here")
        await sender.barrier()
        before = federated(relay)
        chain.put_twin(two, ELSEWHERE)

        async def goes_elsewhere() -> bool:
            await sender.request((two.id, None), b"where to?")
            await sender.barrier()
            return federated(relay) > before

        await eventually(goes_elsewhere, LIVE_S)
        height_back = chain.put_twin(two)
        await eventually(lambda: height(relay) >= height_back)
        async with session(relay.url, two) as back:
            await sender.request(back.key, b"here again")
            last = b""
            while last != b"here again":
                last = (await back.receive()).plain


async def test_a_twin_updated_while_its_look_up_is_in_flight(
    relay: RelayProcess, chain: Devchain
) -> None:
    one, two = fresh(2)
    async with session(relay.url, one) as sender:
        before = federated(relay)
        chain.set(held=[QUERY])
        asked = chain.requests(QUERY)
        try:
            await sender.request((two.id, None), b"where to?")
            # The node has computed its answer and holds it back.
            await eventually(lambda: chain.requests(QUERY) > asked)
            block = chain.put_twin(two, ELSEWHERE)
            await eventually(lambda: height(relay) >= block)
        finally:
            chain.set(held=[])
        for _ in range(3):
            await sender.request((two.id, None), b"and now?")
            await sender.barrier()
        # Whatever the late answer said, the relay does not keep it.
        await eventually(lambda: federated(relay) >= before + 3)
        assert relay.redis is not None
        entry = relay.redis.run("HGET", "relay:twin", str(two.id))
        assert entry is not None and entry.endswith(ELSEWHERE.encode())


async def test_a_thousand_unknown_twins_at_once(
    tmp_path: Path, chain: Devchain, start_server: Callable[..., RedisServer]
) -> None:
    """A thousand look-ups at once finish in time.

    The relay runs without follower and import, so nothing is cached before.
    """
    relay = chain_relay(
        tmp_path / "relay", start_server(), chain, celery=False, relay__handshake_timeout_s="60"
    )
    crowd, known = fresh(1000), fresh(20)
    for each in (*crowd, *known):
        each.token()  # make the keys before measuring time
    try:
        relay.start()
        for each in known:
            assert await let_in(relay, each)
        asked = chain.requests(QUERY)
        # Each query takes so long that a thousand in sequence would take minutes.
        chain.set(delay_s=0.3)
        flood = asyncio.gather(*(sign_in(relay, each) for each in crowd))
        signed_in_s: list[float] = []
        while not flood.done():
            began = time.monotonic()
            assert await let_in(relay, known[len(signed_in_s) % len(known)])
            signed_in_s.append(time.monotonic() - began)
        assert {status for status, _ in await flood} == {ALIVE}
        assert chain.requests(QUERY) - asked <= len(crowd) / 10, "gathered, and none asked twice"
    finally:
        chain.set(delay_s=0)
        relay.show_new_log()
        relay.stop()
    print(f"{len(signed_in_s)} times, {max(signed_in_s):.3f} s at most")


async def test_known_twins_sign_in_past_a_chain_that_hangs(
    tmp_path: Path, chain: Devchain, start_server: Callable[..., RedisServer]
) -> None:
    relay = chain_relay(
        tmp_path / "relay", start_server(), chain, celery=False, relay__handshake_timeout_s="60"
    )
    crowd, known = fresh(100), fresh(5)
    try:
        relay.start()
        for each in known:
            assert await let_in(relay, each)
        chain.set(held=[QUERY])
        asked = chain.requests(QUERY)
        waiting = [asyncio.create_task(sign_in(relay, each)) for each in crowd]
        await eventually(lambda: chain.requests(QUERY) > asked)
        async with asyncio.timeout(2):
            for each in known:
                assert await let_in(relay, each)
        assert not any(each.done() for each in waiting)
        chain.set(held=[])
        assert {status for status, _ in await asyncio.gather(*waiting)} == {ALIVE}
    finally:
        chain.set(held=[])
        relay.show_new_log()
        relay.stop()
