"""Commit times of the last minute only, and the memory of a process."""

from __future__ import annotations

import os

import psutil

from relay.sessions.counters import Counters
from relay.sessions.recent import BEATS, SLOWER_S, Recent, memory_bytes, quantile


def test_quantiles() -> None:
    assert quantile([0] * 11, 0.5) is None
    assert quantile([1] + [0] * 10, 0.99) == 0.0005
    assert quantile([98, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], 0.5) == 0.0005
    assert quantile([98, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0], 0.99) == 0.005
    assert quantile([0] * 10 + [1], 0.5) == SLOWER_S


def test_what_is_long_ago_is_forgotten() -> None:
    counters = Counters()
    recent = Recent(counters)
    assert recent.report()["commit_p50_ms"] == ""
    counters.committed(0.2)
    assert recent.report()["commit_p99_ms"] == 250
    for _ in range(10):
        counters.committed(0.0001)
    found = recent.report()
    assert (found["commit_p50_ms"], found["commit_p99_ms"]) == (0.5, 250)
    for _ in range(BEATS):
        counters.committed(0.002)
        found = recent.report()
    assert (found["commit_p50_ms"], found["commit_p99_ms"]) == (2.5, 2.5)


def test_memory() -> None:
    real = psutil.Process(os.getpid()).memory_info().rss
    assert 0.8 * real < memory_bytes() < 1.2 * real
