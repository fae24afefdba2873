"""The chain unavailable, followers and imports killed: what keeps working, what is reported."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.ops.lease import LIFE_S
from tests.support.children import children
from tests.support.devchain import Devchain, running_devchain
from tests.support.identities import twin
from tests.support.on_chain import (
    chain_relay,
    follows,
    height,
    let_in,
    sign_in,
    wait_for_follower,
)
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess, run_command
from tests.support.rmb_client import session
from tests.support.tcp_proxy import Direction, tcp_proxy
from tests.support.waiting import eventually

BLOCK_S = 0.25
FIRST, COUNT = 50_001, 40
TAKE_OVER_S = LIFE_S + 20
"""Seconds until a killed follower's lease ends and the watch has started another one."""
QUEUES = "chain,default"
"""Queues of the Celery worker that follows the chain."""

_numbers = iter(range(FIRST, FIRST + COUNT))

StartOnChain = Callable[..., RelayProcess]


def fresh(count: int) -> list[Any]:
    """Return twins of the chain that no other test has used."""
    return [twin(next(_numbers)) for _ in range(count)]


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Devchain]:
    """Start a node that makes blocks by itself."""
    twins = [twin(number) for number in range(FIRST, FIRST + COUNT)]
    with running_devchain(tmp_path / "chain", twins, block_time_s=BLOCK_S) as node:
        yield node


@pytest.fixture
def on_chain(tmp_path: Path, start_server: Callable[..., RedisServer]) -> Iterator[StartOnChain]:
    """Start relays connected to nodes; arguments as for `chain_relay`, after the server."""
    relays: list[RelayProcess] = []

    def start(
        *nodes: Devchain | str, server: RedisServer | None = None, **options: Any
    ) -> RelayProcess:
        folder = tmp_path / f"relay{len(relays)}"
        redis = server or start_server(append_fsync="no")
        relays.append(chain_relay(folder, redis, *nodes, **options))
        return relays[-1].start()

    yield start
    for relay in relays:
        relay.show_new_log()
        relay.stop()


def degraded(relay: RelayProcess, *, admin: bool) -> list[str]:
    """Return the problems that `/ready` lists while it answers 200."""
    status, body = relay.get("/ready", admin=admin)
    assert status == 200, body
    found: list[str] = json.loads(body)["degraded"]
    return found


async def imported(relay: RelayProcess) -> None:
    """Wait until the mirror holds all twins."""
    await eventually(lambda: relay.metrics()["relay_chain_import_needed"] == 0)


async def test_the_chain_goes_away_and_comes_back(chain: Devchain, on_chain: StartOnChain) -> None:
    relay = on_chain(chain, twins__cache_s="1", operator_site=True)
    wait_for_follower(relay)
    await imported(relay)
    known, receiver = fresh(2)
    async with session(relay.url, known) as sender, session(relay.url, receiver) as there:
        chain.stop()
        await eventually(
            lambda: any("chain: no node" in each for each in degraded(relay, admin=True)), 20
        )
        # Known twins keep working: connected ones, and twins that the worker has never seen.
        for number in range(3):
            await sender.request(there.key, b"%d" % number)
            assert (await there.receive()).plain == b"%d" % number
        (never_seen,) = fresh(1)
        assert await let_in(relay, never_seen)
        # An unknown twin gets the error that the look-up failed, not that the twin does not exist.
        unknown = twin(FIRST - 1)  # an id that the chain may have assigned
        status, text = await sign_in(relay, unknown)
        assert (status, text) == (500, "twin lookup failed"), "and nothing of our nodes"
        await sender.request((unknown.id, None), b"hello?")
        answer = await sender.receive()
        assert answer.error.message == "twin lookup failed"
        await eventually(lambda: degraded(relay, admin=False) == ["twins cannot be looked up"])
        assert relay.metrics()["events_listener_reconnecting"] == 1
        await eventually(lambda: relay.counted("relay_chain_query_failures_total") > 0)
        await eventually(lambda: relay.counted("relay_messages_total", reason="look_up_failed"))
        assert relay.counted("relay_messages_total", reason="unknown_twin") == 0
        chain.start()
        chain.put_twin(unknown)
        await eventually(lambda: let_in(relay, unknown))
        await eventually(lambda: follows(relay))
        await eventually(lambda: not degraded(relay, admin=True))
        await eventually(lambda: not degraded(relay, admin=False))
        await sender.request(there.key, b"still here")
        assert (await there.receive()).plain == b"still here"


async def test_a_relay_that_starts_without_the_chain(
    chain: Devchain, on_chain: StartOnChain
) -> None:
    relay = on_chain(chain)
    wait_for_follower(relay)
    await imported(relay)
    (known,) = fresh(1)
    relay.stop()
    chain.stop()
    relay.start()
    assert relay.redis is not None
    relay.redis.run("DEL", "relay:twin")
    assert await let_in(relay, known), "the mirror knows it"
    assert "TRACE" not in relay.log().upper()
    chain.start()
    wait_for_follower(relay)


async def test_another_node_takes_over(chain: Devchain, on_chain: StartOnChain) -> None:
    """When one node stops answering, the relay switches to another node of the same chain."""
    async with tcp_proxy(("127.0.0.1", chain.port)) as first:
        relay = on_chain(f"ws://127.0.0.1:{first.port}", chain.url)
        # In a thread, because the proxy runs on this loop.
        await asyncio.to_thread(wait_for_follower, relay)
        assert first.connections
        (known,) = fresh(1)
        assert await let_in(relay, known)
        first.stall(Direction.TO_CLIENT)
        newcomer = twin(FIRST - 2)
        chain.put_twin(newcomer)
        began = time.monotonic()
        await eventually(lambda: let_in(relay, newcomer))
        # After 7 s without a new head the relay switches to the next node; look-ups abandon the
        # silent node after 4 s.
        assert time.monotonic() - began < 20
        assert await let_in(relay, known)
        left = 'events_listener_errors_total{stage="node"}'
        await eventually(lambda: relay.metrics()[left] >= 1)
        block = chain.put_twin(twin(FIRST - 5))
        await eventually(lambda: height(relay) >= block)
        assert relay.metrics()["relay_chain_flushes_total"] == 1, "what was missed was replayed"


async def test_two_relays_and_one_follower(
    chain: Devchain, on_chain: StartOnChain, start_server: Callable[..., RedisServer]
) -> None:
    """When the follower's process, and later its whole relay, is killed, another takes over."""
    server = start_server(append_fsync="no")
    relays = [on_chain(chain, server=server) for _ in range(2)]
    wait_for_follower(relays[0])

    def follower() -> int:
        return int(server.run("HGET", "relay:chain", "by").decode().rpartition("/")[2])

    def followers() -> dict[int, RelayProcess]:
        alive = [relay for relay in relays if relay in RelayProcess.running]
        return {child.pid: relay for relay in alive for child in children(QUEUES, of=relay.pid)}

    await eventually(lambda: len(followers()) == 2)
    await eventually(lambda: follower() in followers())
    # Other followers start and exit: there has never been a second one.
    for _ in range(4):
        start_another = "from relay.ops import background; background.hand_over('chain.follow')"
        settings = {**relays[1].settings, "twins.source": "tfchain"}
        done = await asyncio.to_thread(
            run_command, relays[1].folder, "shell", "-c", start_another, settings=settings
        )
        assert done.returncode == 0, done.stderr
    await eventually(lambda: not server.run("LLEN", "relay:celery:chain"))
    await eventually(lambda: server.run("HLEN", "relay:celery:unacked") == 1, 30, "one works on")
    assert chain.requests("chain_subscribeNewHeads") == 1
    first = follower()
    holder = followers()[first]
    (other,) = [relay for relay in relays if relay is not holder]
    holder.kill()
    changed = twin(FIRST - 3)
    assert not await let_in(other, changed)
    block = chain.put_twin(changed)
    await eventually(lambda: follower() != first and follower() in followers(), TAKE_OVER_S)
    await eventually(lambda: height(other) >= block)
    assert await let_in(other, changed)
    assert server.run("HGET", "relay:chain", "flushes") == b"1", "it went on where the other was"


async def test_a_killed_celery_worker_follows_again(
    chain: Devchain, on_chain: StartOnChain
) -> None:
    relay = on_chain(chain)
    wait_for_follower(relay)
    (child,) = children(QUEUES, of=relay.pid)
    child.kill()
    block = chain.put_twin(twin(FIRST - 4))
    await eventually(lambda: height(relay) >= block, TAKE_OVER_S)
    assert relay.metrics()["relay_chain_flushes_total"] == 1


async def test_an_import_goes_on_after_a_kill(tmp_path: Path, on_chain: StartOnChain) -> None:
    pages, page = 12, 500
    with running_devchain(
        tmp_path / "large", made_up_twins=pages * page, block_time_s=BLOCK_S, instant=False
    ) as chain:
        chain.set(delay_s=0.15)
        relay = on_chain(chain)
        assert relay.redis is not None
        server = relay.redis

        def read() -> int:
            return int(server.run("HGET", "relay:chain:import", "twins") or 0)

        await eventually(lambda: read() >= 2 * page, 60)
        (child,) = children(QUEUES, of=relay.pid)
        child.kill()
        child.wait(10)
        at_kill = read()
        assert page <= at_kill < pages * page
        began = chain.requests("state_getKeysPaged")
        chain.set(delay_s=0)
        await eventually(
            lambda: server.run("HGET", "relay:chain:import", "state") == b"done", TAKE_OVER_S
        )
        assert read() == pages * page
        left = pages - at_kill // page
        # The pages left, the empty page after the last, and the one that was in progress.
        assert chain.requests("state_getKeysPaged") - began <= left + 2
        shown = run_command(
            relay.folder,
            *("rmb_chain", "status", "--json"),
            settings={**relay.settings, "twins.source": "tfchain"},
        )
        status = json.loads(shown.stdout)
        assert status["mirrored"] == pages * page
        assert not status["import"]["needed"]


async def test_a_stopped_relay_gives_the_lease_back(
    chain: Devchain, on_chain: StartOnChain
) -> None:
    relay = on_chain(chain)
    wait_for_follower(relay)
    began = time.monotonic()
    relay.stop()
    assert time.monotonic() - began < 15
    assert relay.redis is not None
    assert relay.redis.run("EXISTS", "relay:chain:lease") == 0
