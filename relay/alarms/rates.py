"""Increases of counters over the last minutes, computed from samples of their totals. Pure.

The state kept between two samples is plain JSON, so that any process can take the next sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_STEPS: Final = 2048
"""Most increases kept for one counter, enough for 128 workers within a minute. Increases older than
the window are dropped in any case."""
MAX_SOURCES: Final = 2048
"""Most totals remembered, one for each worker process, including some that have ended."""
GONE_S: Final = 3600.0

Memory = dict[str, Any]


def look(
    memory: Memory, totals: Mapping[str, float], now: float, window_s: float
) -> tuple[Memory, dict[str, float]]:
    """Take one sample of a counter that several sources have.

    Args:
        memory: what the last call returned; empty before the first.
        totals: totals by source, one for each process. A new source counts from 0, except at the
            very first call, which does not know earlier totals.
        now: unix seconds.
        window_s: seconds for which increases count.

    Returns:
        What to remember, and by source how much it has grown within the window.
    """
    first = not memory
    last: dict[str, list[float]] = dict(memory.get("last", {}))
    steps: list[list[Any]] = [
        step for step in memory.get("steps", []) if 0 <= now - step[0] < window_s
    ]
    for source, total in totals.items():
        before = last[source][0] if source in last else (total if first else 0.0)
        if total > before:
            steps.append([round(now, 3), source, total - before])
        last[source] = [total, round(now, 3)]
    kept = {
        source: seen
        for source, seen in last.items()
        if source in totals or 0 <= now - seen[1] < GONE_S
    }
    if len(kept) > MAX_SOURCES:
        newest = sorted(kept.items(), key=lambda item: item[1][1])[-MAX_SOURCES:]
        kept = dict(newest)
    steps = steps[-MAX_STEPS:]
    grown = dict.fromkeys(totals, 0.0)
    for _, source, increase in steps:
        grown[source] = grown.get(source, 0.0) + increase
    return {"last": kept, "steps": steps}, grown
