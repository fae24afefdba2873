"""Lists of data in Redis, page by page: no item is repeated or missing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.test import Client

from relay.ops import background, task_record
from relay.queues import keys
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db


def walk(client: Client, path: str, **query: Any) -> list[dict[str, Any]]:
    """Return all items of a list, read two at a time."""
    found: list[dict[str, Any]] = []
    cursor = {}
    while True:
        answer = client.get(f"/api/v1{path}", {"limit": 2, **query, **cursor})
        assert answer.status_code == 200, answer.content
        page = answer.json()
        assert len(page["items"]) <= 2
        found += page["items"]
        if page["next"] is None:
            return found
        cursor = {"cursor": page["next"]}


@pytest.fixture
def refused(site_redis: RedisServer) -> RedisServer:
    minute = int(time.time()) // 60
    for number in range(1, 8):
        site_redis.run("ZINCRBY", keys.hits("twin", minute), 10 - number % 3, str(number))
        address = f"192.0.2.{number}"
        site_redis.run("ZINCRBY", keys.hits("address", minute), number, address)
        site_redis.run("ZINCRBY", keys.hits("handshake", minute - 20), 20, address)
    return site_redis


def test_who_runs_into_limits(viewer: Client, refused: RedisServer) -> None:
    twins = walk(viewer, "/limits/hits")
    counts = [each["messages"] for each in twins]
    assert counts == sorted(counts, reverse=True)
    assert [each["twin"] for each in twins] == [3, 6, 1, 4, 7, 2, 5], "equal ones by number"
    assert [each["twin"] for each in walk(viewer, "/limits/hits", order="twin")] == [*range(1, 8)]
    addresses = walk(viewer, "/limits/hits/addresses")
    assert [each["messages"] for each in addresses] == [7, 6, 5, 4, 3, 2, 1]
    assert {each["handshakes"] for each in addresses} == {20}
    recent = walk(viewer, "/limits/hits/addresses", minutes=5, order="address")
    assert [each["handshakes"] for each in recent] == [0] * 7
    for wrong in ({"order": "size"}, {"minutes": 0}, {"minutes": 61}):
        assert viewer.get("/api/v1/limits/hits", wrong).status_code == 422


def test_background_tasks(viewer: Client, site_redis: RedisServer) -> None:
    for number in range(5):
        task_record.failed(f"f{number}", "federation.deliver", (number,), ValueError("boom"))
    task_record.alive()
    for number in range(3):
        task_record.began(f"r{number}", "chain.follow", ())
    site_redis.run("LPUSH", f"{background.KEY_PREFIX}chain", json.dumps({"headers": {}}))

    failed = walk(viewer, "/tasks/failed")
    assert sorted(each["id"] for each in failed) == [f"f{number}" for number in range(5)]
    assert [each["at"] for each in failed] == sorted((each["at"] for each in failed), reverse=True)
    oldest = walk(viewer, "/tasks/failed", order="at")
    assert [each["at"] for each in oldest] == [each["at"] for each in reversed(failed)]
    running = walk(viewer, "/tasks/running")
    assert sorted(each["id"] for each in running) == ["r0", "r1", "r2"]
    queues = walk(viewer, "/tasks/queues")
    assert [each["name"] for each in queues] == sorted(background.QUEUES)
    assert walk(viewer, "/tasks/queues", order="-waiting")[0]["name"] == "chain"
