"""Tests of parts of the bridge, without a relay."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from lattice import janitor
from lattice.bridge import lease, policies
from lattice.bridge.counts import OTHERS, Counts, Passing
from lattice.bridge.lease import Lease
from lattice.bridge.links import Links
from lattice.bridge.main import Bridge
from lattice.bridge.policies import LivePolicies
from lattice.bridge.refusals import FailedError, Side, of_lattice, of_twin
from lattice.bridge.to_lattice import find_target
from lattice.connection import LatticeConnection
from lattice.errors import (
    CallTimeoutError,
    NoRespondersError,
    NotConnectedError,
    RemoteError,
    TooManyCallsError,
)
from lattice.objects import Objects
from lattice.options import LatticeOptions
from lattice.report import Report
from peer import errors as peer_errors
from proto.lattice import state
from proto.lattice.policy import Direction, PolicyError, RefusedError
from proto.lattice.state import POLICIES, POLICIES_CHANGED, ProcessKind
from tests.lattice.test_judge import ACTOR, CLUSTER, PROVIDER
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually
from tests.support.world import all_twins_csv, fresh_twins

GIVEN = {
    "name": "echo",
    "direction": "to_lattice",
    "twins": "*",
    "entities": "*",
    "names": "*",
}  # fmt: skip


class Known:
    """A directory with one alias and one link."""

    def actor_of(self, alias: str) -> str | None:
        return ACTOR.public if alias == "echo" else None

    def contract_of(self, provider: str, link_name: str) -> str | None:
        return "a:b" if (provider, link_name) == (PROVIDER.public, "main") else None


@pytest.mark.parametrize(
    ("command", "key", "operation", "alias"),
    [
        (f"{ACTOR.public}.A.B", ACTOR.public, "A.B", ""),
        ("echo.A.B", ACTOR.public, "A.B", "echo"),
        (f"{PROVIDER.public}.main.A.B", PROVIDER.public, "A.B", ""),
    ],
)
def test_what_a_command_names(command: str, key: str, operation: str, alias: str) -> None:
    target = find_target(f"lattice.{command}", Known())
    assert (target.entity.public_key, target.operation, target.alias) == (key, operation, alias)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("", 400),
        ("echo", 400),
        (f"{PROVIDER.public}.main", 400),
        (f"{PROVIDER.public}..A", 400),
        (f"{PROVIDER.public}.other.A.B", 404),
        ("nobody.A.B", 404),
    ],
)
def test_what_a_command_does_not_name(command: str, code: int) -> None:
    with pytest.raises(FailedError, match=r"^bridge: ") as caught:
        find_target(f"lattice.{command}", Known())
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("failed", "code", "text"),
    [
        (of_lattice(Side.ACTOR, RemoteError("boom")), 500, "actor: boom"),
        (of_lattice(Side.PROVIDER, CallTimeoutError("s", 2)), 504, "provider: no answer"),
        (of_lattice(Side.ACTOR, NoRespondersError("s")), 503, "lattice: no responders"),
        (of_lattice(Side.ACTOR, NotConnectedError("gone")), 503, "lattice: gone"),
        (of_lattice(Side.ACTOR, TooManyCallsError("busy")), 429, "bridge: busy"),
        (of_twin(7, peer_errors.TwinNotFoundError(7)), 404, "relay: there is no twin 7"),
    ],
)
def test_where_a_failure_arose(failed: FailedError, code: int, text: str) -> None:
    assert failed.code == code and str(failed).startswith(text)


def test_links_allow_what_they_say() -> None:
    links = Links()
    links.put(ACTOR.public, {"twins": "7", "commands": "a.*", "serves": "b.*"})
    links.of(ACTOR.public).check(7, "a.b")
    assert links.server_of(7, "b.c") == ACTOR.public
    assert links.server_of(8, "b.c") is None and links.server_of(7, "c") is None
    with pytest.raises(PolicyError):
        links.put(ACTOR.public, {"twins": "x"})
    with pytest.raises(RefusedError, match="has no link with the bridge"):
        links.of(ACTOR.public)


def test_refused_names_are_counted_together() -> None:
    counts = Counts()
    for number in range(3):
        counting = counts.counting(Passing(Direction.TO_TWIN, f"A.{number}", "c", "M"))
        with pytest.raises(FailedError), counting:
            raise FailedError(Side.BRIDGE, "no_policy", 403, "no")
    with counts.counting(Passing(Direction.TO_TWIN, "A.B", "c", "M")):
        assert counts.running == 1
    rows = counts.take()
    assert {key.operation: row.outcomes for key, row in rows.items()} == {
        OTHERS: {"no_policy": 3},
        "A.B": {"ok": 1},
    }
    assert counts.take() == {} and counts.running == 0


async def test_one_bridge_holds_the_lease(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.05)
    async with Redis.from_url(valkey.url) as redis:
        first, second = Lease(redis, "first"), Lease(redis, "second")
        keeping = [asyncio.create_task(first.keep())]
        async with asyncio.timeout(60):
            await first.held.wait()
            keeping.append(asyncio.create_task(second.keep()))
            keeping[0].cancel()
            await asyncio.wait({keeping[0]})
            assert first.lost.is_set()
            await second.held.wait()
        keeping[1].cancel()
        await asyncio.wait({keeping[1]})
        assert await redis.keys("relay:lattice:bridge:*") == []


async def test_the_lease_of_a_killed_bridge_moves(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lease.TTL_MS / 1000 + lease.RENEW_S <= 6, "as docs/operate/lattice.md says"
    monkeypatch.setattr(lease, "TTL_MS", 300)
    monkeypatch.setattr(lease, "RENEW_S", 0.05)
    async with Redis.from_url(valkey.url) as redis:
        await redis.set(lease.KEY, "killed", px=lease.TTL_MS)
        other = Lease(redis, "other")
        keeping = asyncio.create_task(other.keep())
        async with asyncio.timeout(5):
            await other.held.wait()
        assert await redis.get(lease.KEY) == b"other"
        keeping.cancel()
        await asyncio.wait({keeping})


async def test_policies_are_live(valkey: RedisServer) -> None:
    async with Redis.from_url(valkey.url) as redis:
        live = LivePolicies(redis, POLICIES, POLICIES_CHANGED)
        keeping = asyncio.create_task(live.keep())

        async def tell(*policies: dict[str, Any]) -> None:
            await redis.set(POLICIES, json.dumps(policies))
            await redis.publish(POLICIES_CHANGED, b"")
            await eventually(lambda: len(live.now) == len(policies))

        await tell(GIVEN, {**GIVEN, "name": "second"})
        live.now.decide(Direction.TO_LATTICE, 7, ACTOR.public, "A.B", 1, 1.0)
        await tell()
        await redis.set(POLICIES, json.dumps([GIVEN, {**GIVEN, "name": ""}, 7]))
        await eventually(lambda: len(live.now) == 1)
        await redis.set(POLICIES, b"no json")
        await eventually(lambda: len(live.now) == 0)
        keeping.cancel()


async def test_whenever_they_are_cancelled_they_end(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Background tasks end whenever they are cancelled.

    `redis-py` swallows some cancellations, above all while it connects.
    """
    for module, name in ((lease, "RENEW_S"), (policies, "LOOK_S"), (state, "REPORT_EVERY_S")):
        monkeypatch.setattr(module, name, 0.05)

    async def cancel_at(step: int, begin: Callable[[Redis], Coroutine[Any, Any, None]]) -> None:
        async with Redis.from_url(valkey.url) as redis:
            task = asyncio.create_task(begin(redis))
            for _ in range(step):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task}, timeout=5)
            assert task.done()

    await asyncio.gather(
        *(
            cancel_at(step, begin)
            for step in range(0, 40, 2)
            for begin in (
                lambda redis: LivePolicies(redis, POLICIES, POLICIES_CHANGED).keep(),
                lambda redis: Lease(redis, "x").keep(),
                lambda redis: Report(redis, ProcessKind.BRIDGE, dict).keep(),
            )
        )
    )


async def test_the_bridge_with_the_lease_cleans_the_object_store(
    options: LatticeOptions,
    connection: LatticeConnection,
    valkey: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(janitor, "PERIOD_S", 0.02)
    (twin,) = fresh_twins(1)
    objects = Objects(connection)
    await objects.put("0" * 32, b"nobody takes it")
    twins = tmp_path / "twins.csv"
    twins.write_text(all_twins_csv())
    given = dataclasses.replace(options, object_ttl_s=0.01, cluster_seed=CLUSTER.seed)
    bridge = Bridge(
        {
            "options": dataclasses.asdict(given),
            "redis_url": valkey.url,
            "provider_seed": PROVIDER.seed,
            "link_name": "default",
            "twin_secret": f"0x{twin.mini_secret.hex()}",  # TEST KEY
            "relays": ["ws://127.0.0.1:1"],
            "twins": str(twins),
            "substrate": [],
        }
    )
    stop = asyncio.Event()
    running = asyncio.create_task(bridge.run(stop, lambda: None))
    js = await objects.jetstream()
    try:
        async with asyncio.timeout(60):
            while (await js.stream_info(objects.stream)).state.messages:
                await asyncio.sleep(0.02)
    finally:
        stop.set()
        await running
