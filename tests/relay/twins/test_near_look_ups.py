"""`TwinCache.look_near`: look-ups that use only memory and the shared hash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from relay.twins.cache import MISSING, TwinCache
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


async def test_a_near_look_up_asks_the_hash_and_not_the_source(
    clock: StillClock, redis: Redis
) -> None:
    await TwinCache(ScriptedSource(7, 8), redis.execute_command, clock, wall_clock=clock).look_up(7)
    source = ScriptedSource(7, 8)
    cache = TwinCache(source, redis.execute_command, clock, wall_clock=clock)
    near = await asyncio.gather(*(cache.look_near(number) for number in (7, 7, 8)))
    assert near == [record(7), record(7), MISSING]
    assert source.fetches == []
    assert (cache.get(7), cache.get(8)) == (record(7), MISSING)
    await cache.close()


async def test_a_near_look_up_that_is_given_up_takes_nothing_from_others(
    clock: StillClock, redis: Redis
) -> None:
    await TwinCache(ScriptedSource(7), redis.execute_command, clock, wall_clock=clock).look_up(7)
    cache = TwinCache(ScriptedSource(7), redis.execute_command, clock, wall_clock=clock)
    first, second = (asyncio.create_task(cache.look_near(7)) for _ in range(2))
    await asyncio.sleep(0)
    second.cancel()
    assert await first == record(7)
    await cache.close()


async def test_a_near_look_up_that_a_change_overtakes_is_not_kept(
    clock: StillClock, redis: Redis
) -> None:
    await TwinCache(ScriptedSource(7), redis.execute_command, clock, wall_clock=clock).look_up(7)
    cache = TwinCache(ScriptedSource(7), redis.execute_command, clock, wall_clock=clock)
    near = asyncio.create_task(cache.look_near(7))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the query is under way
    cache.invalidate([7])
    assert await near is MISSING
    assert cache.get(7) is MISSING
