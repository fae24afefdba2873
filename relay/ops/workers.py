"""Relay workers, as their heartbeats in Redis describe them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from relay.ops.redis_client import number, text
from relay.queues import keys

# Seconds after which a heartbeat is late: one is due each second, and it expires after 30 s.
LATE_S = 5.0

# Integers from here on are not accepted as counts: a float cannot hold all of them exactly.
_EXACT = 2**53

# Maximum number of workers on one page or in one scrape; an installation has some dozens.
MAX_WORKERS = 1024


@dataclass(frozen=True, slots=True)
class WorkerState:
    """One worker process that is alive, or was less than 30 s ago.

    Attributes:
        sessions: RMB sessions.
        heartbeat: Unix time of the last heartbeat.
        state: `ok`, `starting`, `draining`, `redis_away`, `storage_full`, `disk_full`,
            `redis_refuses` or `redis_policy`.
        commit_p50_ms, commit_p99_ms: Figures of the last minute; None if there was no commit.
        memory_bytes: Memory of the process; 0: its system does not report it.
        metrics: Value of each series (see `relay.ops.metric_names`).
    """

    boot_id: str
    slot: str
    pid: int
    host: str
    started: float
    heartbeat: float
    sessions: int
    loop_lag_ms: float
    state: str
    metrics: Mapping[str, float]
    commit_p50_ms: float | None = None
    commit_p99_ms: float | None = None
    memory_bytes: int = 0

    @property
    def sbd_sessions(self) -> int:
        """SBD connections whose clients have proven their keys."""
        return int(self.metrics.get("sbd_keys", 0))

    @property
    def all_sessions(self) -> int:
        """Sessions of all protocols."""
        return self.sessions + self.sbd_sessions

    def silent_s(self, now: float | None = None) -> float:
        """Return the seconds since the last heartbeat."""
        return max(0.0, (time.time() if now is None else now) - self.heartbeat)

    def late(self, now: float | None = None) -> bool:
        """Check whether heartbeats are missing."""
        return self.silent_s(now) > LATE_S


def list_workers(client: Redis) -> list[WorkerState]:
    """Return the workers with a heartbeat, by host and slot.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    boot_ids = _boot_ids(client.smembers(keys.WORKERS))
    with client.pipeline(transaction=False) as pipe:
        for boot_id in boot_ids:
            pipe.hgetall(keys.worker(boot_id))
        return _states(boot_ids, pipe.execute())


async def list_workers_async(client: AsyncRedis) -> list[WorkerState]:
    """Do the same as `list_workers`, on an event loop."""
    boot_ids = _boot_ids(await client.smembers(keys.WORKERS))
    async with client.pipeline(transaction=False) as pipe:
        for boot_id in boot_ids:
            pipe.hgetall(keys.worker(boot_id))
        return _states(boot_ids, await pipe.execute())


def _boot_ids(members: Any) -> list[str]:
    return sorted(text(member) for member in members)[:MAX_WORKERS]


def _states(boot_ids: list[str], hashes: list[Any]) -> list[WorkerState]:
    states = [
        read_worker(boot_id, fields)
        for boot_id, fields in zip(boot_ids, hashes, strict=True)
        if fields
    ]
    return sorted(states, key=lambda each: (each.host, each.slot, each.started))


def read_worker(boot_id: str, raw: Mapping[Any, Any]) -> WorkerState:
    """Return the state in one heartbeat hash.

    Missing or malformed fields read as zero or empty: a worker of another release must not break
    the page.
    """
    fields = {text(name): text(value) for name, value in raw.items()}
    return WorkerState(
        boot_id=boot_id,
        slot=fields.get("slot", ""),
        pid=int(number(fields.get("pid"))),
        host=fields.get("host", ""),
        started=number(fields.get("started")),
        heartbeat=number(fields.get("heartbeat")),
        sessions=int(number(fields.get("sessions"))),
        loop_lag_ms=number(fields.get("loop_lag_ms")),
        state=fields.get("state", ""),
        metrics=_metrics(fields.get("metrics", "")),
        commit_p50_ms=number(fields["commit_p50_ms"]) if fields.get("commit_p50_ms") else None,
        commit_p99_ms=number(fields["commit_p99_ms"]) if fields.get("commit_p99_ms") else None,
        memory_bytes=int(number(fields.get("memory_bytes"))),
    )


def _metrics(document_text: str) -> dict[str, float]:
    try:
        document = json.loads(document_text) if document_text else {}
    except ValueError:
        return {}
    if not isinstance(document, dict):
        return {}
    return {name: float(value) for name, value in document.items() if _is_number(value)}


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, float) or (type(value) is int and abs(value) < _EXACT)
