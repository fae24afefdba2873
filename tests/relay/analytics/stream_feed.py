"""A lake that fills step by step, and the sums that a query finds in all of it."""

from __future__ import annotations

import os
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import duckdb

from relay.analytics.generator import Options, generate
from relay.analytics.lake import FRESH_GLOB, Lake
from relay.analytics.spark import stream

DAY = date(2026, 3, 1)
DAY_US = 1_772_323_200_000_000

Sums = dict[tuple[Any, ...], Counter[str]]


class Feed:
    """A lake that receives the files of a synthetic day one after the other."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.made = folder / "made"
        generate(self.made, Options(DAY, days=1, rows=6_000, twins=200, relays=2, **options))
        self.waiting = sorted(self.made.rglob("*.parquet"))
        self.lake = Lake(folder / "lake")
        self.lake.events.mkdir(parents=True)

    def bring(self, count: int) -> None:
        """Put the next files into the lake, as the compactor does."""
        for file in self.waiting[:count]:
            target = self.lake.events.parent / file.relative_to(self.made)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
        del self.waiting[:count]

    def source(self, from_us: int = DAY_US) -> stream.Source:
        return stream.Source(self.lake.events, FRESH_GLOB, DAY, 1, from_us)


def queried(lake: Lake) -> Sums:
    """Return the sums over the files that count, computed without Spark."""
    files = [str(file.path) for file in lake.files(DAY, DAY)]
    with duckdb.connect(config={"threads": "1", "memory_limit": "500MB"}) as connection:
        found = connection.execute(
            """
            SELECT epoch_us(event_time) // 60000000 * 60000000, relay, kind, reason,
                coalesce(remote, ''), count(*), coalesce(sum(size_bytes), 0),
                coalesce(sum(latency_us), 0),
                count(*) FILTER (kind = 'delivered' AND latency_us > 60000000)
            FROM read_parquet(?) WHERE protocol = 'rmb' GROUP BY ALL
            """,
            [files],
        ).fetchall()
    return {
        row[:5]: Counter(dict(zip(stream.SUMS, map(int, row[5:]), strict=True))) for row in found
    }
