"""Health and metrics over HTTP."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from relay.analytics import lag
from relay.analytics.lag import Lag
from tests.relay.alarms.conftest import configure
from tests.relay.conftest import AddWorker
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db


def test_live_needs_nothing(client: Client, no_redis: None) -> None:
    answer = client.get("/live")
    assert (answer.status_code, answer.json()) == (200, {"status": "live"})


def test_ready_with_a_worker(client: Client, add_worker: AddWorker) -> None:
    add_worker("a")
    answer = client.get("/ready")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["status"], body["reasons"], body["workers"]) == ("ready", [], 1)
    assert body["degraded"] == [
        *(
            f"no Celery worker takes tasks from queue {queue}"
            for queue in ("federation", "chain", "default")
        ),
        "alarms were not evaluated yet",
    ]


def test_ready_says_what_is_missing(
    client: Client, site_redis: RedisServer, add_worker: AddWorker
) -> None:
    assert client.get("/ready").json()["reasons"] == ["no relay worker has a heartbeat"]
    add_worker("late", heartbeat=time.time() - 20)
    assert client.get("/ready").status_code == 503
    add_worker("full", slot="1", state="storage_full")
    add_worker("policy", slot="2", state="redis_policy")
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == [
        "worker test/1: Redis is out of memory",
        "worker test/2: Redis may evict queues: its maxmemory-policy must be noeviction",
    ]


def test_ready_checks_the_eviction_policy(
    client: Client, site_redis: RedisServer, add_worker: AddWorker
) -> None:
    add_worker("a")
    site_redis.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        reasons = client.get("/ready").json()["reasons"]
    finally:
        site_redis.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert reasons == ["Redis may evict queues: its maxmemory-policy must be noeviction"]


def test_without_redis(client: Client, no_redis: None) -> None:
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["reasons"][0].startswith("redis: ")
    assert client.get("/metrics").status_code == 503


def test_metrics(client: Client, add_worker: AddWorker) -> None:
    add_worker("a", {"relay_message_rx": 12})
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer["Content-Type"].startswith("text/plain; version=0.0.4")
    names = {found.name for found in text_string_to_metric_families(answer.content.decode())}
    assert {"relay_message_rx", "relay_worker_connections"} <= names


def test_metrics_of_a_relay_that_records(
    client: Client, site_redis: RedisServer, settings: Any
) -> None:
    lag.publish(site_redis.client(), Lag(time.time(), 2.5, 1, 900))
    assert b"relay_analytics_waiting" not in client.get("/metrics").content
    configure(settings, "analytics", record=True)
    told = client.get("/metrics").content.decode()
    assert f'relay_analytics_waiting_seconds{{host="{lag.host()}"}} 2.5\n' in told
    assert f'relay_analytics_waiting_bytes{{host="{lag.host()}"}} 900\n' in told


@pytest.mark.parametrize("path", ["/live", "/ready", "/metrics"])
def test_they_are_read_only(client: Client, site_redis: RedisServer, path: str) -> None:
    assert client.post(path).status_code == 405
