"""Rates in Redis as a worker publishes them (`relay.sessions.rates`)."""

from __future__ import annotations

from relay.queues import keys
from relay.sessions.rates import Rates, pack
from tests.support.redis_servers import RedisServer


def publish(
    server: RedisServer, key: str, epoch: int = 0, worker: str = "boot", **rates: float
) -> None:
    """Publish the rates of a session, or of a queue if there is no epoch."""
    field = keys.stream(key) if not epoch else key.encode()
    server.run("SADD", keys.WORKERS, worker)
    server.run("HSET", keys.rates(worker), field, pack(epoch, Rates(**rates)))
