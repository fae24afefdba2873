"""Recent figures of a worker for its heartbeat: commit times of the last minute, and memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Final

from relay.sessions.counters import COMMIT_BOUNDS_S, Counters

BEATS: Final = 60
"""Heartbeats that the figures cover: about a minute."""
SLOWER_S: Final = 10.0
"""Value reported for a quantile above the last bound."""
_STATM: Final = "/proc/self/statm"


class Recent:
    """The counters of a minute ago, compared with those of now."""

    def __init__(self, counters: Counters, memory: Callable[[], int] | None = None) -> None:
        """
        Args:
            counters: counters of the worker.
            memory: returns the memory in use by its process, in bytes; None uses
                `memory_bytes`.
        """
        self._counters = counters
        self._memory = memory or memory_bytes
        self._before: deque[list[int]] = deque([list(counters.commit_buckets)], maxlen=BEATS)

    def report(self) -> dict[str, str | int | float]:
        """Return fields of the heartbeat; called once for each."""
        now = list(self._counters.commit_buckets)
        counts = [after - before for after, before in zip(now, self._before[0], strict=True)]
        self._before.append(now)
        return {
            "commit_p50_ms": _milliseconds(quantile(counts, 0.5)),
            "commit_p99_ms": _milliseconds(quantile(counts, 0.99)),
            "memory_bytes": self._memory(),
        }


def quantile(counts: list[int], part: float) -> float | None:
    """Return the bucket bound that this part of the commits did not exceed; None without commits.

    Args:
        counts: counts by bucket, those of `COMMIT_BOUNDS_S` and one above.
        part: number from 0 to 1.
    """
    wanted = part * sum(counts)
    if not wanted:
        return None
    below = 0
    for bound, count in zip(COMMIT_BOUNDS_S, counts, strict=False):
        below += count
        if below >= wanted:
            return bound
    return SLOWER_S


def memory_bytes() -> int:
    """Return the memory in use by this process, in bytes; 0 if the system does not report it."""
    try:
        with open(_STATM, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def _milliseconds(seconds: float | None) -> str | float:
    return "" if seconds is None else round(seconds * 1000, 3)
