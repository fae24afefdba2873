"""Whether the operator site and what it depends on work: the answers of /live and /ready."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from django.conf import settings
from django.db import Error as DatabaseError
from django.db import connection
from redis import Redis
from redis.exceptions import RedisError

from relay.alarms import figures as alarm_figures
from relay.ops import background
from relay.ops.redis_client import client, disk_full
from relay.ops.workers import WorkerState, list_workers
from relay.twins import chain_state

NOEVICTION: Final = "noeviction"
STATE_REASONS: Final = {
    "storage_full": "Redis is out of memory",
    "disk_full": "Redis cannot write to its disk, which may be full",
    "redis_refuses": "Redis takes no writes: it loads its file, or is a replica",
    "redis_policy": "Redis may evict queues: its maxmemory-policy must be noeviction",
}


class Health(NamedTuple):
    """The result and its reasons; without reasons everything works.

    Attributes:
        degraded: Problems that do not affect sessions; no reason to send clients elsewhere.
    """

    reasons: tuple[str, ...]
    workers: int = 0
    degraded: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        return not self.reasons


def readiness() -> Health:
    """Check the database, Redis and the workers."""
    reasons = [*_database_reasons()]
    database_away = bool(reasons)
    degraded: list[str] = []
    workers: list[WorkerState] = []
    try:
        connection_to_redis = client()
        workers = list_workers(connection_to_redis)
        reasons += _redis_reasons(connection_to_redis)
        if disk_full(connection_to_redis):
            reasons.append(STATE_REASONS["disk_full"])  # and no worker can write a heartbeat
        else:
            reasons += _worker_reasons(workers)
        degraded += _background_complaints(connection_to_redis)
        degraded += _chain_complaints(connection_to_redis)
    except RedisError as error:
        reasons.append(f"redis: {error}")
    if not database_away:
        degraded += _alarm_complaints()
    return Health(tuple(reasons), len(workers), tuple(degraded))


def _database_reasons() -> list[str]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return [f"database: {error}"]
    return []


def _alarm_complaints() -> list[str]:
    try:
        complaint = alarm_figures.complaint()
    except DatabaseError as error:
        return [f"alarms: {error}"]
    return [complaint] if complaint else []


def _redis_reasons(connection_to_redis: Redis) -> list[str]:
    policy = connection_to_redis.info("memory").get("maxmemory_policy", NOEVICTION)
    return [] if policy == NOEVICTION else [STATE_REASONS["redis_policy"]]


def _background_complaints(connection_to_redis: Redis) -> list[str]:
    return [
        f"no Celery worker takes tasks from queue {queue}"
        for queue in background.queues_without_worker(connection_to_redis)
    ]


def _chain_complaints(connection_to_redis: Redis) -> list[str]:
    if settings.RMB.twins.source != "tfchain":
        return []
    complaint = chain_state.read(connection_to_redis).following.complaint(time.time())
    return [f"chain: {complaint}"] if complaint else []


def _worker_reasons(workers: list[WorkerState]) -> list[str]:
    live = [worker for worker in workers if not worker.late()]
    if not live:
        return ["no relay worker has a heartbeat"]
    return [
        f"worker {worker.host}/{worker.slot}: {STATE_REASONS[worker.state]}"
        for worker in live
        if worker.state in STATE_REASONS
    ]
