"""`relay.twins.cache`: memory, merged misses, stale entries, unknown twins, and the shared hash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import uvloop
from redis.asyncio import Connection, ConnectionPool, Redis

from relay.queues import keys
from relay.twins import bounds
from relay.twins.cache import MISSING, TwinCache, TwinLookupError
from tests.relay.twins.sources import ScriptedSource, StillClock, record
from tests.support.redis_servers import RedisServer


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
async def redis(valkey: RedisServer) -> AsyncIterator[Redis]:
    client = Redis.from_url(valkey.url, protocol=2)
    yield client
    await client.aclose()


async def settle() -> None:
    """Let tasks that wait for no outside event finish."""
    for _ in range(20):
        await asyncio.sleep(0)


async def asked_again(source: ScriptedSource) -> None:
    """Wait for the next background fetch to finish."""
    await source.asked_times(len(source.fetches) + 1)
    await settle()


# Memory


async def test_a_twin_is_fetched_once_and_then_known(clock: StillClock) -> None:
    source = ScriptedSource(7)
    cache = TwinCache(source, None, clock)
    assert cache.get(7) is MISSING
    assert await cache.look_up(7) == record(7)
    assert cache.get(7) == record(7)
    assert await cache.look_up(7) == record(7)
    assert source.fetches == [(7,)]
    assert len(cache) == 1


async def test_concurrent_misses_are_one_fetch(clock: StillClock) -> None:
    source = ScriptedSource(*range(1, 51))
    cache = TwinCache(source, None, clock)
    found = await asyncio.gather(*(cache.look_up(1 + n % 50) for n in range(200)))
    assert len(source.fetches) == 1
    assert sorted(source.fetches[0]) == list(range(1, 51))
    assert [each.id for each in found if each] == [1 + n % 50 for n in range(200)]


async def test_misses_join_the_look_up_under_way(clock: StillClock) -> None:
    source = ScriptedSource(7)
    source.open.clear()
    cache = TwinCache(source, None, clock)
    first = asyncio.create_task(cache.look_up(7))
    await source.asked.wait()
    second = asyncio.create_task(cache.look_up(7))
    await settle()
    source.open.set()
    assert await first == await second == record(7)
    assert source.fetches == [(7,)]


async def test_a_caller_that_goes_away_leaves_the_others_their_look_up(clock: StillClock) -> None:
    source = ScriptedSource(7)
    source.open.clear()
    cache = TwinCache(source, None, clock)
    first = asyncio.create_task(cache.look_up(7))
    second = asyncio.create_task(cache.look_up(7))
    await source.asked.wait()
    first.cancel()
    source.open.set()
    assert await second == record(7)


async def test_memory_is_bounded(clock: StillClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_CACHED_TWINS", 3)
    source = ScriptedSource(*range(1, 6))
    cache = TwinCache(source, None, clock)
    for twin in range(1, 6):
        await cache.look_up(twin)
    assert len(cache) == 3
    assert cache.get(1) is MISSING
    assert cache.get(5) == record(5)


async def test_too_many_waiting_look_ups_are_refused(
    clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_WAITING_LOOK_UPS", 2)
    source = ScriptedSource(1, 2, 3)
    cache = TwinCache(source, None, clock)
    found = await asyncio.gather(
        *(cache.look_up(twin) for twin in (1, 2, 3)), return_exceptions=True
    )
    assert found[:2] == [record(1), record(2)]
    assert isinstance(found[2], TwinLookupError)


# Unknown twins


async def test_unknown_is_remembered_for_seconds_only(clock: StillClock) -> None:
    source = ScriptedSource(1, 9)
    cache = TwinCache(source, None, clock, unknown_s=5)
    assert await cache.look_up(5) is None
    assert cache.get(5) is None
    assert await cache.look_up(5) is None
    assert source.fetches == [(5,)]
    clock.now += 5
    assert cache.get(5) is MISSING
    source.twins[5] = record(5)
    assert await cache.look_up(5) == record(5)


async def test_ids_above_the_highest_twin_need_no_query(clock: StillClock) -> None:
    source = ScriptedSource(3)
    cache = TwinCache(source, None, clock)
    assert await cache.look_up(1_000_000) is None
    assert cache.get(999_999) is None
    assert await cache.look_up(4) is None
    assert source.fetches == []


async def test_a_new_twin_is_known_once_it_is_announced(clock: StillClock) -> None:
    source = ScriptedSource(3)
    cache = TwinCache(source, None, clock)
    assert await cache.look_up(4) is None
    source.twins[4] = record(4)
    assert await cache.look_up(4) is None
    cache.invalidate([4])
    assert await cache.look_up(4) == record(4)
    source.twins[5] = record(5)
    cache.invalidate(None)
    assert await cache.look_up(5) == record(5)


async def test_guessed_ids_do_not_push_out_twins(
    clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_CACHED_UNKNOWN", 3)
    source = ScriptedSource(1, 100)
    cache = TwinCache(source, None, clock)
    await cache.look_up(1)
    for twin in range(2, 20):
        assert await cache.look_up(twin) is None
    assert cache.get(1) == record(1)
    assert cache.get(2) is MISSING
    assert cache.get(19) is None


# Changes


async def test_invalidate_makes_stale_and_counts(clock: StillClock) -> None:
    source = ScriptedSource(7, 8)
    cache = TwinCache(source, None, clock)
    await asyncio.gather(cache.look_up(7), cache.look_up(8))
    source.twins[7] = record(7, version=2)
    cache.invalidate([7])
    assert cache.generation == 1
    assert cache.get(7) is MISSING
    assert cache.get(8) == record(8)
    assert await cache.look_up(7) == record(7, version=2)
    cache.invalidate(None)
    assert cache.generation == 2
    assert cache.get(8) is MISSING


async def test_a_removed_twin_is_unknown(clock: StillClock) -> None:
    source = ScriptedSource(7, 8)
    cache = TwinCache(source, None, clock)
    await cache.look_up(7)
    del source.twins[7]
    cache.invalidate([7])
    assert await cache.look_up(7) is None
    assert cache.get(7) is None


@pytest.mark.parametrize("changed", [[7], None])
async def test_a_fetch_from_before_a_change_is_not_kept(
    clock: StillClock, changed: list[int] | None
) -> None:
    source = ScriptedSource(7)
    source.open.clear()
    cache = TwinCache(source, None, clock)
    before = asyncio.create_task(cache.look_up(7))
    await source.asked.wait()
    source.twins[7] = record(7, version=2)
    cache.invalidate(changed)
    after = asyncio.create_task(cache.look_up(7))
    await settle()
    source.open.set()
    assert await before == record(7)
    assert await after == record(7, version=2)
    assert cache.get(7) == record(7, version=2)


# Age


async def test_a_twin_in_use_is_refreshed_in_the_background(clock: StillClock) -> None:
    source = ScriptedSource(7)
    cache = TwinCache(source, None, clock, life_s=60)
    await cache.look_up(7)
    source.twins[7] = record(7, version=2)
    clock.now += 46
    assert cache.get(7) == record(7)
    await asked_again(source)
    assert cache.get(7) == record(7, version=2)


async def test_an_unused_twin_gets_old(clock: StillClock) -> None:
    source = ScriptedSource(7)
    cache = TwinCache(source, None, clock, life_s=60)
    await cache.look_up(7)
    clock.now += 60
    assert cache.get(7) is MISSING


# The source is unavailable


async def test_without_a_stale_copy_the_look_up_fails(
    clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    source = ScriptedSource(7)
    source.away = True
    cache = TwinCache(source, None, clock)
    for _ in range(3):
        with pytest.raises(TwinLookupError, match="twin 7: away"):
            await cache.look_up(7)
    assert caplog.text.count("twins cannot be looked up") == 1
    source.away = False
    assert await cache.look_up(7) == record(7)
    assert caplog.text.count("twins can be looked up again") == 1


async def test_a_stale_twin_is_used_while_the_source_is_away(clock: StillClock) -> None:
    source = ScriptedSource(7)
    cache = TwinCache(source, None, clock, life_s=60)
    await cache.look_up(7)
    source.away = True
    cache.invalidate(None)
    assert await cache.look_up(7) == record(7)
    # From here on look-ups do not wait: the cache asks the source in the background, once a second.
    asked = len(source.fetches)
    for _ in range(10):
        assert cache.get(7) == record(7)
        await settle()
    assert len(source.fetches) == asked
    clock.now += bounds.RETRY_S
    assert cache.get(7) == record(7)
    await asked_again(source)
    source.away = False
    source.twins[7] = record(7, version=2)
    clock.now += bounds.RETRY_S
    assert cache.get(7) == record(7)
    await asked_again(source)
    assert cache.get(7) == record(7, version=2)


async def test_an_error_inside_the_source_is_an_answer_too(
    clock: StillClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = ScriptedSource(7)
    cache = TwinCache(source, None, clock)

    async def broken() -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(source, "highest_id", broken)
    with pytest.raises(TwinLookupError, match="internal error"):
        await cache.look_up(7)
    assert "twin look-up failed" in caplog.text


async def test_close_ends_what_waits(clock: StillClock) -> None:
    source = ScriptedSource(7)
    source.open.clear()
    cache = TwinCache(source, None, clock)
    waiting = asyncio.create_task(cache.look_up(7))
    await source.asked.wait()
    await cache.close()
    with pytest.raises(TwinLookupError, match="closed"):
        await waiting


async def test_what_a_failing_source_knows_is_used(clock: StillClock) -> None:
    source = ScriptedSource(7, 8)
    source.away = True
    source.known = {7: record(7)}
    cache = TwinCache(source, None, clock)
    seven, eight = await asyncio.gather(cache.look_up(7), cache.look_up(8), return_exceptions=True)
    assert seven == record(7)
    assert isinstance(eight, TwinLookupError)
    # Like any stale twin, it is fetched again in the background, once a second.
    source.away = False
    source.twins[7] = record(7, version=2)
    clock.now += bounds.RETRY_S
    assert cache.get(7) == record(7)
    await asked_again(source)
    assert cache.get(7) == record(7, version=2)


async def test_a_stale_twin_is_used_while_the_source_is_slow(
    clock: StillClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "PATIENCE_S", 0.01)
    source = ScriptedSource(7)
    cache = TwinCache(source, None, clock)
    await cache.look_up(7)
    cache.invalidate(None)
    source.open.clear()
    source.twins[7] = record(7, version=2)
    assert cache.get(7) is MISSING
    assert await cache.look_up(7) == record(7)
    assert cache.get(7) == record(7), "whoever asks next does not wait"
    source.open.set()
    await settle()
    assert cache.get(7) == record(7, version=2)


# The shared hash


async def test_a_slow_source_does_not_hold_up_what_the_hash_knows(
    clock: StillClock, redis: Redis
) -> None:
    await TwinCache(ScriptedSource(7, 8), redis.execute_command, clock, wall_clock=clock).look_up(7)
    source = ScriptedSource(*range(1, 2000))
    source.open.clear()
    cache = TwinCache(source, redis.execute_command, clock, wall_clock=clock)
    unknown = [asyncio.create_task(cache.look_up(twin)) for twin in range(100, 1900)]
    await source.asked.wait()
    assert await cache.look_up(7) == record(7)
    together = asyncio.create_task(cache.look_up(99))
    assert await cache.look_up(7) == record(7)
    source.open.set()
    assert await together == record(99)
    assert await asyncio.gather(*unknown) == [record(twin) for twin in range(100, 1900)]
    asked = [twin for batch in source.fetches for twin in batch]
    assert sorted(asked) == [99, *range(100, 1900)], "each was asked for once"


async def test_an_id_that_is_invalidated_on_its_way_to_the_source(
    clock: StillClock, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MAX_PARALLEL_FETCHES", 1)
    source = ScriptedSource(1, 7)
    source.open.clear()
    cache = TwinCache(source, redis.execute_command, clock, wall_clock=clock)
    blocker = asyncio.create_task(cache.look_up(1))
    await source.asked.wait()
    looks = []
    for _ in range(3):
        looks.append(asyncio.create_task(cache.look_up(7)))
        await asyncio.sleep(0)
        cache.invalidate([7])
    source.twins[7] = record(7, version=2)
    source.open.set()
    assert await asyncio.gather(blocker, *looks) == [record(1), *[record(7, version=2)] * 3]


async def test_a_second_worker_reads_the_shared_hash(clock: StillClock, redis: Redis) -> None:
    first, second = ScriptedSource(7), ScriptedSource()
    one = TwinCache(first, redis.execute_command, clock, wall_clock=clock)
    await one.look_up(7)
    two = TwinCache(second, redis.execute_command, clock, wall_clock=clock)
    assert await two.look_up(7) == record(7)
    assert second.fetches == []


async def test_an_old_entry_of_the_shared_hash_is_fetched_again(
    clock: StillClock, redis: Redis
) -> None:
    source = ScriptedSource(7)
    await TwinCache(source, redis.execute_command, clock, wall_clock=clock).look_up(7)
    source.twins[7] = record(7, version=2)
    clock.now += bounds.SHARED_LIFE_S + 1
    two = TwinCache(source, redis.execute_command, clock, wall_clock=clock)
    assert await two.look_up(7) == record(7, version=2)


async def test_a_fetch_from_before_a_change_does_not_enter_the_shared_hash(
    clock: StillClock, redis: Redis
) -> None:
    source = ScriptedSource(7)
    source.open.clear()
    cache = TwinCache(source, redis.execute_command, clock, wall_clock=clock)
    waiting = asyncio.create_task(cache.look_up(7))
    await source.asked.wait()
    await redis.incr(keys.TWINS_VERSION)
    source.open.set()
    await waiting
    assert await redis.hlen(keys.TWINS) == 0
    cache.invalidate([7])
    await cache.look_up(7)
    assert await redis.hlen(keys.TWINS) == 1


async def test_a_malformed_entry_is_fetched_again(
    clock: StillClock, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    for entry in ("", "x", "1 1 00 - here", "1000 1 " + "00" * 32 + " 02 here"):
        await redis.hset(keys.TWINS, "7", entry)
        cache = TwinCache(ScriptedSource(7), redis.execute_command, clock, wall_clock=clock)
        assert await cache.look_up(7) == record(7)
    assert "malformed" in caplog.text


async def test_without_redis_the_source_is_asked(
    clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    client = Redis.from_url("redis://127.0.0.1:1", protocol=2, retry=None)
    cache = TwinCache(ScriptedSource(7), client.execute_command, clock)
    assert await cache.look_up(7) == record(7)
    assert "not readable" in caplog.text
    await client.aclose()


class CutConnection(Connection):
    """A connection that closes before its first command is written."""

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        assert self._writer is not None
        self._writer.transport.abort()
        await super().on_connect_check_health(check_health)


def test_a_connection_to_redis_that_ends_at_once_is_no_failure(
    clock: StillClock, valkey: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The look-up succeeds although uvloop raises `RuntimeError` on writes to closed transports."""

    async def main() -> None:
        pool = ConnectionPool.from_url(
            valkey.url, connection_class=CutConnection, protocol=2, retry=None
        )
        client = Redis(connection_pool=pool)
        cache = TwinCache(ScriptedSource(7), client.execute_command, clock)
        assert await cache.look_up(7) == record(7)
        await client.aclose()
        await pool.aclose()

    uvloop.run(main())
    assert "not readable" in caplog.text
