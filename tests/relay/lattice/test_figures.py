"""Metrics of the lattice."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from redis.asyncio import Redis as AsyncRedis

from proto.lattice.state import Total
from relay.lattice import figures
from relay.ops.metric_names import BY_NAME, family
from tests.relay.alarms.conftest import configure
from tests.support.lattice_state import count, ended, report
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db


def test_series(site_redis: RedisServer, client: Client, settings: Any) -> None:
    gone = report(site_redis, "bridge", "gone")
    report(site_redis, "bridge", "2")
    report(site_redis, "monitor", nats="away")
    ended(site_redis, gone)
    count(site_redis, Total.CALLS, "to_twin", "ok", by=7)
    count(site_redis, Total.REFUSED, "to_twin", "rate", by=2)
    count(site_redis, Total.JUDGED, by=100)
    count(site_redis, Total.FOUND, "replay", by=3)
    site_redis.run("HINCRBY", "relay:lattice:totals", "of another version", 1)
    found = figures.read(site_redis.client())
    assert found == {
        'lattice_processes{kind="bridge"}': 1,
        'lattice_connected{kind="bridge"}': 1,
        'lattice_processes{kind="monitor"}': 1,
        'lattice_connected{kind="monitor"}': 0,
        'lattice_calls_total{direction="to_twin",outcome="ok"}': 7,
        'lattice_refused_total{direction="to_twin",reason="rate"}': 2,
        "lattice_judged_total": 100,
        "lattice_unjudged_total": 0,
        'lattice_findings_total{reason="replay"}': 3,
    }
    assert {family(name.partition("{")[0]) for name in found} <= BY_NAME.keys()
    assert b"lattice_calls_total" not in client.get("/metrics").content
    configure(settings, "lattice", enabled=True)
    assert b'lattice_findings_total{reason="replay"} 3\n' in client.get("/metrics").content


async def test_a_worker_reads_the_same(site_redis: RedisServer) -> None:
    report(site_redis, "bridge")
    count(site_redis, Total.FOUND, "hash")
    async with AsyncRedis.from_url(site_redis.url) as redis:
        assert await figures.read_async(redis) == figures.read(site_redis.client())
