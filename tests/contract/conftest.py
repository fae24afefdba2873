"""A real server and SimRedis, which get the same commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.redis_pair import Pair
from tests.support import redis_servers


@pytest.fixture(scope="module", params=["valkey", "redis62"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[redis_servers.RedisServer]:
    start = {
        "valkey": redis_servers.start_valkey,
        "redis62": redis_servers.start_redis62,
    }[request.param]
    running = start(tmp_path_factory.mktemp("redis"))
    yield running
    running.remove()


@pytest.fixture
def pair(server: redis_servers.RedisServer) -> Iterator[Pair]:
    made = Pair(server)
    yield made
    made.close()
