"""`relay.ops.nodes` and `relay.ops.redis_use`: reports of supervisors, and contents of Redis."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.test import Client
from redis import Redis

from relay.access.errors import Away
from relay.ops import nodes, redis_use
from relay.ops.redis_client import client
from relay.queues import keys
from tests.relay.rest.conftest import account, bearer, token_of
from tests.support.redis_servers import RedisServer

PROCESS = {
    "name": "worker 0", "pid": 7, "rss_bytes": 5 << 20, "uss_bytes": 3 << 20, "cpu": 0.25,
    "files": 12, "files_limit": 1024,
}  # fmt: skip
DISK = {
    "use": "data folder", "path": "/srv/rmb", "used_bytes": 1 << 20, "partial": True,
    "free_bytes": 1 << 30, "size_bytes": 2 << 30,
}  # fmt: skip


def told(host: str, **changes: Any) -> dict[str, Any]:
    """Return a supervisor's document."""
    return {
        "host": host, "pid": 5, "at": time.time(), "cores": 4, "load": [0.5, 0.25, 0.125],
        "memory_bytes": 8 << 30, "memory_free_bytes": 4 << 30, "processes": [PROCESS],
        "disks": [DISK], **changes,
    }  # fmt: skip


def tell(server: RedisServer, host: str, **changes: Any) -> None:
    server.run("HSET", keys.NODES, f"{host} 5", json.dumps(told(host, **changes)))


def test_nodes_are_those_that_told_lately(site_redis: RedisServer) -> None:
    tell(site_redis, "beta")
    tell(site_redis, "alpha", processes=[{"name": "supervisor", "pid": 5}])
    tell(site_redis, "gone", at=time.time() - nodes.SILENT_S - 1)
    tell(site_redis, "newer", processes=[{**PROCESS, "fans": 3}])
    site_redis.run("HSET", keys.NODES, "broken", "{")
    site_redis.run("HSET", keys.NODES, "text", '"x"')
    found = nodes.list_nodes()
    assert [each.host for each in found] == ["alpha", "beta"]
    assert found[0].processes[0].rss_bytes is None
    figures = nodes.figures(found)
    assert figures['relay_process_open_files{host="beta",process="worker 0",pid="7"}'] == 12
    assert figures['relay_disk_free_bytes{host="alpha",use="data folder"}'] == 1 << 30
    assert not any("supervisor" in name for name in figures), "nothing is known of it"


@pytest.mark.usefixtures("no_redis")
def test_nodes_without_redis() -> None:
    for look in (nodes.list_nodes, redis_use.look):
        with pytest.raises(Away):
            look()


def test_what_redis_holds(site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with site_redis.client() as filler:
        pipe = filler.pipeline(transaction=False)
        for number in range(3000):
            pipe.xadd(f"stream:{number}", {"_": "x" * 1000})
        for number in range(500):
            pipe.set(f"limits:{number}:1", "x" * 100)
        for number in range(300):
            pipe.xadd(keys.outbox(1), {"_": "x" * 5000})
            pipe.hset(keys.TWINS, str(number), "x" * 100)
        pipe.set("somebody's", "x")
        pipe.execute()
        names = filler.keys()
        for name in names:
            pipe.memory_usage(name)
        whole = dict.fromkeys(("queues", "limits", "outbox", "registry and caches"), 0)
        for name, size in zip(names, pipe.execute(), strict=True):
            use = redis_use.use_of(name.decode())
            if use in whole:
                whole[use] += size
    asked: list[int] = []
    sizes = redis_use._sizes

    def counted(redis: Redis, names: list[str]) -> dict[str, int]:
        asked.append(len(names))
        return sizes(redis, names)

    monkeypatch.setattr(redis_use, "_sizes", counted)
    found = redis_use.measure(client())
    for use, size in whole.items():
        assert found.uses[use] == pytest.approx(size, rel=0.2), use
    assert found.keys == 3503
    assert found.sampled < redis_use.MAX_KEYS + 2 * redis_use.STEP + len(redis_use.SINGLE)
    assert sum(asked) < redis_use.MAX_KEYS + 2 * redis_use.STEP + len(redis_use.SINGLE)
    assert sum(found.uses.values()) == pytest.approx(found.used_bytes, rel=0.1)
    assert list(found.uses.values()) == sorted(found.uses.values(), reverse=True)


def test_an_empty_redis(site_redis: RedisServer) -> None:
    found = redis_use.measure(client())
    assert (found.keys, found.sampled) == (0, 0)
    assert found.uses == {redis_use.OVERHEAD: found.used_bytes}


@pytest.mark.django_db
def test_nodes_over_rest(site_redis: RedisServer) -> None:
    tell(site_redis, "alpha")
    viewer = bearer(token_of(account("viewer", "viewer"), role="viewer"))
    (node,) = viewer.get("/api/v1/nodes").json()["items"]
    assert node["processes"] == [PROCESS] and node["disks"] == [DISK]
    assert (node["host"], node["load"]) == ("alpha", [0.5, 0.25, 0.125])
    use = viewer.get("/api/v1/nodes/redis").json()
    assert use["used_bytes"] >= sum(use["uses"].values()) > 0
    assert Client().get("/api/v1/nodes").status_code == 401
