"""Tests of the reports that the processes of a lattice leave in Redis for the site."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from lattice.bridge.counts import Counts, Passing
from lattice.bridge.refusals import FailedError, Side
from lattice.report import Report, told
from proto.lattice import state
from proto.lattice.policy import Direction
from proto.lattice.state import ProcessKind, Total, total_field
from tests.support.redis_servers import RedisServer


@pytest.fixture
async def redis(valkey: RedisServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(valkey.url) as client:
        yield client


async def totals(redis: Redis) -> dict[str, int]:
    found: Any = await redis.hgetall(state.TOTALS)
    return {name.decode(): int(count) for name, count in found.items()}


def call(counts: Counts, outcome: str = "") -> None:
    try:
        with counts.counting(Passing(Direction.TO_TWIN, "A.B", "c", "M")):
            if outcome:
                raise FailedError(Side.BRIDGE, outcome, 500, "no")
    except FailedError:
        pass


async def test_totals_grow_over_reports_and_processes(redis: Redis) -> None:
    counts = Counts()
    looked: dict[str, int] = {Total.JUDGED: 3}
    first = Report(redis, ProcessKind.BRIDGE, dict, counts, lambda: looked)
    for outcome in ("", "", "timed_out", "no_policy"):
        call(counts, outcome)
    await first.tell()
    await first.tell()
    calls = [total_field(Total.CALLS, "to_twin", each) for each in ("ok", "timed_out", "refused")]
    refused = total_field(Total.REFUSED, "to_twin", "no_policy")
    expected = {"judged": 3, calls[0]: 2, calls[1]: 1, calls[2]: 1, refused: 1}
    assert await totals(redis) == expected
    looked[Total.JUDGED] = 5
    await first.tell()
    await Report(redis, ProcessKind.MONITOR, dict, totals=lambda: {Total.JUDGED: 10}).tell()
    assert await totals(redis) == {**expected, "judged": 15}


async def test_what_redis_did_not_take_is_told_later(redis: Redis) -> None:
    await redis.set(state.TOTALS, "of another type")
    report = Report(redis, ProcessKind.MONITOR, dict, totals=lambda: {Total.UNJUDGED: 7})
    with pytest.raises(RedisError):
        await report.tell()
    await redis.delete(state.TOTALS)
    await report.tell()
    assert await totals(redis) == {"unjudged": 7}


async def test_live_processes_of_a_kind(redis: Redis) -> None:
    bridges = [Report(redis, ProcessKind.BRIDGE, lambda: {"host_ids": ["N1"]}) for _ in range(2)]
    for each in (*bridges, Report(redis, ProcessKind.MONITOR, dict)):
        await each.tell()
    assert [each["host_ids"] for each in await told(redis, ProcessKind.BRIDGE)] == [["N1"]] * 2
    await redis.delete(state.process_key(bridges[0].id))  # as the expiry of the key does
    assert len(await told(redis, ProcessKind.BRIDGE)) == 1
    assert 0 < await redis.ttl(state.process_key(bridges[1].id)) <= state.PROCESS_TTL_S
