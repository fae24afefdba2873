"""Clients that hit limits: counts and messages are bounded, and the heaviest clients are kept."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import hiredis
import pytest
from redis import Redis

from relay.queues import keys
from relay.sessions import hits as module
from relay.sessions import scripts
from relay.sessions.hits import Hits, host_of
from tests.support.redis_servers import RedisServer

MINUTE = int(time.time()) // 60


class Commits:
    """The parts of a worker that `Hits` uses, with a real Redis and a fixed clock."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self.sent: list[str] = []

    def wall_s(self) -> float:
        return MINUTE * 60

    async def request(self, payload: bytes) -> Any:
        reader = hiredis.Reader()
        reader.feed(payload)
        words = reader.gets()
        self.sent.append(words[3].decode())
        return self._client.execute_command(*words)


def publish(server: RedisServer, hits: Hits) -> list[str]:
    """Publish the hits, and return the keys of the scripts that ran."""
    with Redis(port=server.port, protocol=2) as client:
        worker: Any = Commits(client)
        asyncio.run(hits.publish(worker))
        return list(worker.sent)


def kept(server: RedisServer, kind: str) -> dict[str, int]:
    with Redis(port=server.port, protocol=2, decode_responses=True) as client:
        found: Any = client.zrange(keys.hits(kind, MINUTE), 0, -1, withscores=True)
    return {name: int(count) for name, count in found}


def test_they_are_added_up(any_redis: RedisServer) -> None:
    hits = Hits()
    for _ in range(3):
        hits.message(7, "192.0.2.1:5000")
    hits.message(8, "192.0.2.1:5001")
    hits.message(9, "")  # through another relay
    hits.handshake("192.0.2.2")
    assert len(publish(any_redis, hits)) == 3
    assert publish(any_redis, hits) == [], "nothing is sent while nobody hits a limit"
    hits.message(7, "[2001:db8::1]:5000")
    publish(any_redis, hits)
    assert kept(any_redis, "twin") == {"7": 4, "8": 1, "9": 1}
    assert kept(any_redis, "address") == {"192.0.2.1": 4, "2001:db8::1": 1}
    assert kept(any_redis, "handshake") == {"192.0.2.2": 1}
    assert 0 < any_redis.run("TTL", keys.hits("twin", MINUTE)) <= module.KEPT_S


def test_hosts() -> None:
    for address, host in (
        ("192.0.2.1:80", "192.0.2.1"), ("192.0.2.1", "192.0.2.1"), ("unix", "unix"),
        ("[2001:db8::1]:80", "2001:db8::1"), ("2001:db8::1", "2001:db8::1"),
    ):  # fmt: skip
        assert host_of(address) == host


def test_a_worker_counts_so_many_names(any_redis: RedisServer) -> None:
    hits = Hits()
    for twin in range(3 * module.MAX_NOTED):
        hits.message(twin, "")
    hits.message(5, "")
    publish(any_redis, hits)
    found = kept(any_redis, "twin")
    assert len(found) == module.KEPT


def test_who_is_heavy_gets_in_late(any_redis: RedisServer) -> None:
    """A heavy client enters the set although it comes last each second and the set is full."""
    with Redis(port=any_redis.port, protocol=2) as client:

        def add(counts: dict[str | int, int]) -> None:
            reader = hiredis.Reader()
            reader.feed(scripts.hits("twin", MINUTE, 10, 60, counts))
            client.execute_command(*reader.gets())

        for _ in range(2):
            add({twin: 1 for twin in range(10)})
        for second in range(30):
            add({"heavy": 10, 100 + second: 1})
    found = kept(any_redis, "twin")
    assert len(found) == 10 and max(found, key=lambda name: found[name]) == "heavy"
    assert 300 <= found["heavy"] <= 300 + 2 + 30 // 9


def test_what_could_not_be_told_is_told_later(valkey: RedisServer) -> None:
    class Away:
        def wall_s(self) -> float:
            return MINUTE * 60

        async def request(self, payload: bytes) -> Any:
            raise hiredis.ReplyError("OOM")

    hits = Hits()
    hits.message(7, "")
    away: Any = Away()
    with pytest.raises(hiredis.ReplyError):
        asyncio.run(hits.publish(away))
    publish(valkey, hits)
    assert kept(valkey, "twin") == {"7": 1}
