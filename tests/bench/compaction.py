"""Convert segments into Parquet: `python -m tests.bench.compaction <folder> <segments>`.

Writes segments as full as recorders let them become, converts them to Parquet in this process as
the compactor of a relay does, each fsync included, then merges the hour they belong to. Prints the
times and sizes as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from relay.analytics.compactor import Compactor
from relay.analytics.conversion import ROW, convert
from relay.analytics.lake import Lake
from relay.analytics.merging import merge
from relay.analytics.records import KINDS, Kind
from relay.analytics.segments import SUFFIX, Header, Type, block, header_block, names_block
from relay.analytics.writer import BUFFER_RECORDS

START_US = 1_772_341_200_000_000
EVENTS = 1_398_080
"""Number of events in a segment of 64 MiB."""

TWINS = 200_000
SESSIONS = 1_000
SHARE = {Kind.ACCEPTED: 0.48, Kind.DELIVERED: 0.47, Kind.QUEUED: 0.04, Kind.DROPPED: 0.01}


def write_segment(lake: Lake, number: int, events: int) -> Path:
    """Write a segment of 10 minutes: half of the events accepted, most delivered, twins by Zipf."""
    rng = np.random.default_rng(number)
    rows = np.zeros(events, dtype=ROW)
    rows["event_time"] = START_US + np.sort(rng.integers(0, 600_000_000, events))
    rows["uid"] = rng.integers(-(1 << 63), 1 << 63, events, dtype=np.int64, endpoint=False)
    rows["size_bytes"] = rng.lognormal(6, 1, events).astype(np.int64) + 100
    rows["src_twin"] = rng.zipf(1.3, events) % TWINS
    rows["dst_twin"] = rng.zipf(1.3, events) % TWINS
    rows["src_session"] = rng.integers(0, SESSIONS, events) * (rng.random(events) < 0.3)
    chances = [SHARE.get(Kind(kind), 0.0) for kind in range(len(KINDS))]
    rows["kind"] = rng.choice(len(KINDS), events, p=chances)
    latency = rng.lognormal(8, 1, events).astype(np.int64)
    rows["latency_us"] = np.where(rows["kind"] == Kind.DELIVERED, latency, -1)
    header = Header("a.example", f"worker-{number}", START_US)
    sessions = [f"session-{each}" for each in range(SESSIONS)]
    parts: list[bytes | memoryview] = [
        header_block(header),
        names_block("sessions", 2, sessions, START_US),
    ]
    for start in range(0, events, BUFFER_RECORDS):
        some = rows[start : start + BUFFER_RECORDS].tobytes()
        parts += block(Type.RECORDS, some, START_US)
    lake.segments.mkdir(parents=True, exist_ok=True)
    path = lake.segments / f"{header.name}{SUFFIX}"
    path.write_bytes(b"".join(parts))
    return path


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the wall and CPU seconds of a call."""
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall_s, time.process_time() - cpu_s


def main() -> None:
    folder, segments = Path(sys.argv[1]), int(sys.argv[2])
    convert(Lake(folder / "first"), write_segment(Lake(folder / "first"), 0, 1_000))
    lake = Lake(folder / "lake")
    for number in range(segments):
        write_segment(lake, number, EVENTS)
    compactor = Compactor(lake, keep_days=10_000, segments_max_bytes=1 << 40)
    wall_s, cpu_s = timed(compactor.convert)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (day,) = lake.days()
    (hour,) = lake.hours(day)
    files = lake.files(day, day)
    assert len(files) == segments
    merge_s, merge_cpu_s = timed(lambda: merge(lake, day, hour))
    (merged,) = lake.files(day, day)
    figures = {
        "events": segments * EVENTS,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "size_bytes": sum(file.size_bytes for file in files),
        "peak_kb": peak_kb,
        "merge_s": merge_s,
        "merge_cpu_s": merge_cpu_s,
        "merged_bytes": merged.size_bytes,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
