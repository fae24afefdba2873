"""Relay workers as operators see them, and draining one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from redis.exceptions import RedisError

from relay.access.actor import Actor
from relay.access.errors import Away, Conflict, NotFound
from relay.audit import services as audit
from relay.ops import control, workers
from relay.ops.redis_client import client
from relay.ops.workers import WorkerState

SILENT: Final = "silent"
"""State of a worker whose heartbeats are missing, whatever state it last reported."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """One worker process.

    Attributes:
        state: `ok`, `starting`, `draining`, `redis_away`, `storage_full`, `disk_full`,
            `redis_refuses`, `redis_policy`, or `silent`.
        started, heartbeat: Unix times.
        sessions: RMB sessions.
        sbd_sessions: SBD connections whose clients have proven their keys.
        loop_lag_ms: Highest delay of the event loop in the last second.
        commit_p50_ms, commit_p99_ms: Upper bounds over the last minute; None if there was no
            commit.
        memory_bytes: Memory of the process; 0: its system does not report it.
    """

    boot_id: str
    host: str
    slot: str
    pid: int
    state: str
    started: float
    uptime_s: float
    heartbeat: float
    sessions: int
    sbd_sessions: int
    loop_lag_ms: float
    commit_p50_ms: float | None
    commit_p99_ms: float | None
    memory_bytes: int

    @property
    def all_sessions(self) -> int:
        """Sessions of all protocols."""
        return self.sessions + self.sbd_sessions


def list_workers() -> list[WorkerRow]:
    """Return the workers with a heartbeat in the last 30 s, by host and slot.

    Raises:
        Away: Redis does not answer.
    """
    now = time.time()
    try:
        return [_row(worker, now) for worker in workers.list_workers(client())]
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error


def get_worker(boot_id: str) -> WorkerRow:
    """Return one worker with a heartbeat in the last 30 s.

    Raises:
        NotFound, Away
    """
    for worker in list_workers():
        if worker.boot_id == boot_id:
            return worker
    raise NotFound(f"no worker {boot_id} gives a heartbeat")


def drain(boot_id: str, *, actor: Actor) -> None:
    """Ask a worker to close its sessions and end; its supervisor starts another in its place.

    Raises:
        Denied, Away
        NotFound: The worker is gone already.
        Conflict: The worker is draining already.
    """
    with audit.change(actor, "worker.drain", target=boot_id) as change:
        worker = get_worker(boot_id)
        if worker.state == "draining":
            raise Conflict(f"worker {boot_id} is draining already")
        change.before = {
            "host": worker.host, "slot": worker.slot, "sessions": worker.sessions,
            "sbd_sessions": worker.sbd_sessions,
        }  # fmt: skip
        control.drain(boot_id)


def _row(worker: WorkerState, now: float) -> WorkerRow:
    return WorkerRow(
        boot_id=worker.boot_id,
        host=worker.host,
        slot=worker.slot,
        pid=worker.pid,
        state=SILENT if worker.late(now) else worker.state,
        started=worker.started,
        uptime_s=round(max(0.0, now - worker.started), 1) if worker.started else 0.0,
        heartbeat=worker.heartbeat,
        sessions=worker.sessions,
        sbd_sessions=worker.sbd_sessions,
        loop_lag_ms=worker.loop_lag_ms,
        commit_p50_ms=worker.commit_p50_ms,
        commit_p99_ms=worker.commit_p99_ms,
        memory_bytes=worker.memory_bytes,
    )
