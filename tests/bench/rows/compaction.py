"""Row about how fast one process converts recorded segments into Parquet."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile

from tests.bench import layout
from tests.bench.bench import Bench
from tests.bench.figures import Figure, Row

SEGMENTS = 4
MUST_PER_S = 1_000_000


def compaction(bench: Bench) -> Row:
    """Measure converting segments of 64 MiB into Parquet, and merging the files of their hour."""
    runs = []
    core = frozenset(sorted(layout.layout().server)[:1])
    for _ in range(bench.runs):
        with tempfile.TemporaryDirectory(prefix="rmb-bench-") as folder, layout.on_cores(core):
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "tests.bench.compaction", folder),
                    str(1 if bench.quick else SEGMENTS),
                ],
                check=True,
                capture_output=True,
                text=True,
            )
        runs.append(json.loads(done.stdout))

    def per(events: str, what: str) -> float:
        return statistics.median(run[events] / run[what] for run in runs)

    figures = [
        Figure("segments to Parquet", per("events", "wall_s"), "events/s", must=MUST_PER_S),
        Figure("... per CPU second", per("events", "cpu_s"), "events"),
        Figure("merging", per("events", "merge_s"), "events/s"),
        Figure("an event in the lake", per("size_bytes", "events"), "bytes"),
        Figure("... merged", per("merged_bytes", "events"), "bytes"),
        Figure("memory of the process", max(run["peak_kb"] for run in runs) / 1024, "MiB"),
    ]
    title = f"{SEGMENTS} segments of 1.4 million events into Parquet, in one process on one core"
    return Row("compaction", title, figures, {"ours": runs})
