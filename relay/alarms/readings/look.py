"""One look at the relay: what a reader gets and what it gives."""

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
    """What was read about one subject.

    Attributes:
        value: in the unit of the rule; None where this subject alone could not be read.
        detail: in words, for the operator.
    """

    value: float | None
    detail: str = ""


Readings = dict[str, dict[str, Reading]]
"""By rule and subject. A subject that was there before and is not now is in order."""


class Look:
    """What readers look with.

    Attributes:
        config: the settings of the platform.
        redis: its client.
        now: unix seconds.
        monotonic: seconds of the clock that nobody sets.
        memory: what this reader wrote into it at the last look; JSON.
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
        """Why Redis refuses all writes, heartbeats among them; empty where it does not."""
        return disk_full(self.redis)

    @functools.cached_property
    def workers(self) -> list[WorkerState]:
        """All heartbeats, read once.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        return list_workers(self.redis)


def newest(workers: Iterable[WorkerState]) -> dict[str, WorkerState]:
    """By place, `host/slot`, the worker that is there now."""
    found: dict[str, WorkerState] = {}
    for worker in workers:
        at = place(worker)
        if at not in found or found[at].started <= worker.started:
            found[at] = worker
    return found


def place(worker: WorkerState) -> str:
    """Where a worker is: stable over restarts, unlike its boot id."""
    return f"{worker.host}/{worker.slot}"


@functools.cache
def machine() -> str:
    """This machine since its start, in which all processes have one monotonic clock."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return socket.gethostname()


def worst(readings: Mapping[str, Reading], most: int) -> dict[str, Reading]:
    """The largest of many readings, their subjects fit to be stored."""
    ordered = sorted(readings.items(), key=lambda item: item[1].value or 0.0, reverse=True)
    return {shown(subject, MAX_SUBJECT_CHARS): reading for subject, reading in ordered[:most]}
