"""Increases of counters over the last minutes, out of looks at their totals: pure.

What it remembers between two looks is plain JSON, so that any process can take the next look.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_STEPS: Final = 2048
"""Increases kept for one counter, which 128 workers have within a minute; older than the window
they go anyway."""
MAX_SOURCES: Final = 2048
"""Totals remembered: a worker process each, some of which are gone."""
GONE_S: Final = 3600.0

Memory = dict[str, Any]


def look(
    memory: Memory, totals: Mapping[str, float], now: float, window_s: float
) -> tuple[Memory, dict[str, float]]:
    """Takes one look at a counter that several sources have.

    Args:
        memory: what the last look returned; empty before the first.
        totals: by source, each for a process of its own: a source that is new began at 0, but for
            the very first look, which knows nothing of before.
        now: unix seconds.
        window_s: how far back increases count.

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
