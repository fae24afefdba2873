"""Periodic work of a worker, with a real Redis and without sockets."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from redispipe.address import RedisAddress
from relay.queues import keys
from relay.sessions import burial, upkeep
from relay.sessions.options import WorkerOptions
from relay.sessions.worker import Worker
from relay.twins.cache import TwinCache
from tests.relay.twins.test_cache import ScriptedSource
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually

AHEAD_S = 7200
DEAD = "dead"
HELD = 5_000


@asynccontextmanager
async def running(
    server: RedisServer, name: str = "boot", clock: Callable[[], float] = time.time
) -> AsyncIterator[Worker]:
    address = RedisAddress.parse(server.url)
    options = WorkerOptions(name, frozenset({"localhost"}))
    twins = TwinCache(ScriptedSource(5, 6))
    worker = Worker(options, address.connect, address.opening(name), twins, wall_clock=clock)
    worker.start()
    try:
        await worker.until_usable()
        yield worker
    finally:
        await worker.stop()


def beat(server: RedisServer, name: str = "boot") -> Any:
    return server.run("HGET", keys.worker(name), "heartbeat")


async def test_mail_is_as_old_as_redis_says(valkey: RedisServer) -> None:
    """A worker whose clock is ahead of Redis by more than the retention removes no fresh entry."""
    valkey.run("XADD", "stream:6", "*", "_", "fresh")
    valkey.run("XADD", "stream:6:old", "1-0", "_", "old")
    async with running(valkey, clock=lambda: time.time() + AHEAD_S):
        await eventually(lambda: valkey.run("XLEN", "stream:6:old") == 0)
    assert valkey.run("XLEN", "stream:6") == 1


async def test_streams_that_nobody_holds_do_not_stay(valkey: RedisServer) -> None:
    """The worker removes an empty stream that no session holds.

    Other streams get a time to live, which a stream that a session holds keeps.
    """
    for name in ("stream:6:empty", "stream:6:left", "stream:6:held"):
        valkey.run("XADD", name, "1-0", "_", "x")
    for name in ("stream:6:empty", "stream:6:held"):
        valkey.run("XDEL", name, "1-0")
    newest = f"{int(time.time() * 1000)}-0"  # entries older than the retention are removed
    valkey.run("XADD", "stream:6:left", newest, "_", "x")
    valkey.run("EXPIRE", "stream:6:held", "60")
    valkey.run("HSET", keys.SESSIONS, "6:held", "5 boot 1.0 127.0.0.1:1")
    async with running(valkey) as worker:
        life_s = 2 * worker.options.queue.retention_s
        await eventually(lambda: valkey.run("TTL", "stream:6:left") > life_s - 60)
        await eventually(lambda: not valkey.run("EXISTS", "stream:6:empty"))
        # The holder adds messages without checking the time to live.
        await eventually(lambda: valkey.run("TTL", "stream:6:held") > life_s - 60)


async def test_whatever_is_in_redis_a_worker_goes_on(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "BEAT_S", 0.02)
    valkey.run("HSET", keys.SESSIONS, "7:x", f"none {DEAD} 1.0 127.0.0.1:1")
    valkey.run("SADD", keys.WORKERS, DEAD)
    async with running(valkey):
        first = await eventually(lambda: beat(valkey))
        await eventually(lambda: beat(valkey) != first)


async def test_a_guest_may_have_the_longest_name_there_is(valkey: RedisServer) -> None:
    name = f"7:{'s' * 1000}"
    valkey.run("SADD", keys.GUESTS, name)
    valkey.run("SADD", keys.WORKERS, DEAD)
    async with running(valkey):
        await eventually(lambda: not valkey.run("SISMEMBER", keys.GUESTS, name))
        await eventually(lambda: DEAD.encode() not in valkey.run("SMEMBERS", keys.WORKERS))


async def test_a_worker_tells_which_connection_is_its_own(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker stores its connection's id, so that another worker can close it after a crash."""
    monkeypatch.setattr(upkeep, "BEAT_S", 0.02)

    def told() -> Any:
        return valkey.run("HGET", burial.LINKS, "boot")

    async with running(valkey) as worker:
        first = await eventually(told)
        valkey.run("CLIENT", "KILL", "ID", first.split()[1].decode())
        await eventually(lambda: told() != first)
        assert told().split()[1] == str(worker.commit.client_id).encode()


async def test_the_last_sign_of_life_outlives_the_heartbeat(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "BEAT_S", 0.02)
    now = time.time()
    async with running(valkey, clock=lambda: now) as worker:
        await eventually(lambda: valkey.run("HGET", keys.WORKERS_SEEN, worker.boot_id))
        now += 60
        seen = f"{now:.3f}".encode()
        await eventually(lambda: valkey.run("HGET", keys.WORKERS_SEEN, "boot") == seen)
    assert valkey.run("HGET", keys.WORKERS_SEEN, "boot") == seen


async def test_what_a_dead_worker_held_is_freed_beside_the_heartbeat(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "BEAT_S", 0.02)
    entries = [
        word
        for number in range(HELD)
        for word in (f"7:{number}", f"{number + 1} {DEAD if number % 2 else 'boot'} 1.0 a:1")
    ]
    valkey.run("HSET", keys.SESSIONS, *entries)
    valkey.run("SADD", keys.WORKERS, DEAD)
    beats = set()
    async with running(valkey), running(valkey, "other"):

        def freed() -> bool:
            beats.add(beat(valkey))
            return bool(valkey.run("HLEN", keys.SESSIONS) == HELD // 2)

        await eventually(freed)
        await eventually(lambda: DEAD.encode() not in valkey.run("SMEMBERS", keys.WORKERS))
        await eventually(lambda: not valkey.run("EXISTS", keys.burial(DEAD)))
    assert len(beats) > 1


async def test_a_dead_worker_is_not_buried_twice(
    valkey: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker checks no session if another one has meanwhile finished with the dead worker."""
    async with running(valkey) as worker:
        await burial.bury(worker, DEAD)
    assert DEAD not in caplog.text
    assert not valkey.run("EXISTS", keys.burial(DEAD))
