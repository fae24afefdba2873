"""Input and output of the readers."""

from __future__ import annotations

import functools
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from redis import Redis

from relay.alarms.bounds import MAX_SUBJECT_CHARS
from relay.ops.printable import shown
from relay.ops.redis_client import disk_full
from relay.ops.workers import WorkerState, list_workers

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class Reading(NamedTuple):
    """Reading of one subject.

    Attributes:
        value: value in the unit of the rule; None if this subject alone could not be read.
        detail: description for the operator.
    """

    value: float | None
    detail: str = ""


Readings = dict[str, dict[str, Reading]]
"""Readings by rule and subject. A subject that had a reading before and has none now is good."""


class Look:
    """Input of a reader.

    Attributes:
        config: settings of the platform.
        redis: Redis client.
        now: unix seconds.
        monotonic: seconds of the monotonic clock.
        memory: what this reader stored in it at the last evaluation, as JSON.
    """

    def __init__(
        self, config: Any, redis: Redis, now: float, monotonic: float, memory: dict[str, Any]
    ) -> None:
        self.config = config
        self.redis = redis
        self.now = now
        self.monotonic = monotonic
        self.memory = memory

    @functools.cached_property
    def disk_full(self) -> str:
        """Why Redis refuses all writes, including heartbeats; empty if it accepts them."""
        return disk_full(self.redis)

    @functools.cached_property
    def workers(self) -> list[WorkerState]:
        """Heartbeats of all workers, read once.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        return list_workers(self.redis)


def newest(workers: Iterable[WorkerState]) -> dict[str, WorkerState]:
    """Return the newest worker of each place, `host/slot`."""
    found: dict[str, WorkerState] = {}
    for worker in workers:
        at = place(worker)
        if at not in found or found[at].started <= worker.started:
            found[at] = worker
    return found


def place(worker: WorkerState) -> str:
    """Return the place of a worker, which, unlike its boot id, is the same after a restart."""
    return f"{worker.host}/{worker.slot}"


@functools.cache
def machine() -> str:
    """Return an id of this machine's boot, within which all processes share one monotonic clock."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()


def worst(readings: Mapping[str, Reading], most: int) -> dict[str, Reading]:
    """Return the largest of many readings, with subjects made fit to be stored."""
    ordered = sorted(readings.items(), key=lambda item: item[1].value or 0.0, reverse=True)
    return {shown(subject, MAX_SUBJECT_CHARS): reading for subject, reading in ordered[:most]}
