"""Rows about the jobs: Spark and DuckDB on the same files, and the cost of a start.

Nothing is pinned: both engines may use every core. They run alternately, several times, and a
ratio is the median of the ratios of neighbouring runs.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

from relay.analytics.spark.catalogue import JOBS
from tests.bench.analytics import events, live
from tests.bench.analytics.engines import (
    Cost,
    Duckdb,
    Spark,
    command,
    differing,
    spark,
)
from tests.bench.bench import Bench
from tests.bench.figures import Figure, Row
from tests.support.spark_cluster import SparkCluster

MUST: dict[str, tuple[float | None, float | None]] = {
    "rollup": (5.0, 4.0),
    "sessions": (5.0, 4.0),
    "anomalies": (4.0, 3.0),
    "audit": (4.0, 3.0),
    "lattice": (None, None),
}
"""Bounds, as multiples of DuckDB's time: must, goal. They follow from measurements of 50 million
rows; few of these are of the lattice, so opening files takes most of its time."""

JUDGED_ROWS = 40_000_000
"""Fewest rows that are judged; with fewer, Spark mostly opens files and starts tasks."""

MEMORY_MIB = 6.5 * 1024
SPARK_MEMORY = "4g"
DUCKDB_MEMORY = "5GB"
MOST_RUNS = 3
DISTURBED = 0.5

COLD_JOB = "audit"
WHOLE_ROWS = 1_000_000

CLUSTER_EVENTS = 1_000_000
"""Maximum number of events unless `--events` chose more: with 5 million on two cores, roll-up would
take more than its share of the time."""

CLUSTER_S = 480.0
"""Seconds for all jobs, on the cluster and in one process, besides making events and starting."""

FILES = 120
WARM_UP_FILES = 10


def jobs(bench: Bench) -> Row:
    """Measure each job in a warm session, and with DuckDB."""
    runs = min(bench.runs, MOST_RUNS)
    judged = bench.events >= JUDGED_ROWS
    figures: list[Figure] = []
    samples: dict[str, list[dict[str, object]]] = {}
    others, peak = 0.0, 0.0
    with (
        events.made(bench.events, bench.events_in) as lake,
        tempfile.TemporaryDirectory(prefix="rmbb-") as name,
        spark("local[4]", lake, Path(name), SPARK_MEMORY) as ours,
    ):
        base = Duckdb(lake, Path(name), DUCKDB_MEMORY)
        for job in map(JOBS.__getitem__, MUST):
            tables = [table.name for table in job.tables]
            ours.run(job.name)
            mine, theirs = _alternate(ours, base, job.name, runs)
            must, goal = MUST[job.name] if judged else (None, None)
            ratio = statistics.median(a.s / b.s for a, b in zip(mine, theirs, strict=True))
            title = f"{job.name}: of DuckDB's time"
            figures.append(Figure(title, ratio, "times", must, goal, lower_is_better=True))
            by_cpu = statistics.median(a.cpu_s / b.cpu_s for a, b in zip(mine, theirs, strict=True))
            figures.append(Figure(f"{job.name}: of DuckDB's CPU time", by_cpu, "times"))
            figures += _described(job.name, mine, theirs)
            print(f"  {job.name}: {ratio:.2f} times DuckDB's time", file=sys.stderr, flush=True)
            wrong = sum(differing(ours, base, table) for table in tables)
            figures.append(
                Figure(f"{job.name}: rows that differ", wrong, must=0, lower_is_better=True)
            )
            samples[f"{job.name} spark"] = [each.as_json() for each in mine]
            samples[f"{job.name} duckdb"] = [each.as_json() for each in theirs]
            others = max(others, *(each.disturbed for each in (*mine, *theirs)))
            peak = max(peak, *(each.peak_mib for each in mine))
    bound = MEMORY_MIB if judged else None
    figures.append(Figure("Spark's memory, all jobs", peak, "MiB", bound, lower_is_better=True))
    title = f"{bench.events:,} events of 30 days, Spark local[4] beside DuckDB"
    return Row("analytics", title, figures, samples, _remarks(others, judged))


def growth(bench: Bench) -> Row:
    """Measure the same jobs on a tenth of the events and on all of them."""
    figures = []
    seconds: list[dict[str, float]] = []
    for rows in (bench.events // 10, bench.events):
        with (
            events.made(rows, bench.events_in) as lake,
            tempfile.TemporaryDirectory(prefix="rmbb-") as name,
            spark("local[4]", lake, Path(name), SPARK_MEMORY) as ours,
        ):
            for job in MUST:  # warm up: the first run of a session is slower
                ours.run(job)
            seconds.append({job: ours.run(job).cpu_s for job in MUST})
    for job in MUST:
        times = seconds[1][job] / seconds[0][job]
        figures.append(
            Figure(f"{job}: CPU time for ten times the rows", times, "times", 10.0, None, True)
        )
    return Row("analytics-growth", f"{bench.events // 10:,} and {bench.events:,} events", figures)


def cold(bench: Bench) -> Row:
    """Measure the whole command, Spark's start included, and the same job in a warm session."""
    warm_s, command_s = [], []
    with (
        events.made(bench.events, bench.events_in) as lake,
        tempfile.TemporaryDirectory(prefix="rmbb-") as name,
        spark("local[4]", lake, Path(name), SPARK_MEMORY) as ours,
    ):
        ours.run(COLD_JOB)
        for _ in range(min(bench.runs, MOST_RUNS)):
            warm_s.append(ours.run(COLD_JOB).s)
            command_s.append(command(COLD_JOB, lake, Path(name)))
    above = statistics.median(a - b for a, b in zip(command_s, warm_s, strict=True))
    figures = [
        Figure("on top of a warm session", above, "s", must=20.0, lower_is_better=True),
        Figure("the command", statistics.median(command_s), "s"),
        Figure("the job in a warm session", statistics.median(warm_s), "s"),
    ]
    title = f"rmb_analytics run {COLD_JOB} over {bench.events:,} events, from the start of Python"
    return Row("analytics-cold", title, figures)


def whole(bench: Bench) -> Row:
    """Measure one command that starts Spark and runs all jobs."""
    with (
        events.made(WHOLE_ROWS, bench.events_in) as lake,
        tempfile.TemporaryDirectory(prefix="rmbb-") as name,
    ):
        runs = min(bench.runs, MOST_RUNS)
        seconds = [command("all", lake, Path(name), "local[*]") for _ in range(runs)]
    took = Figure("the command", statistics.median(seconds), "s", 60.0, 30.0, True)
    title = f"rmb_analytics run all over {WHOLE_ROWS:,} events, from the start of Python"
    return Row("analytics-all", title, [took])


def clustered(bench: Bench) -> Row:
    """Compare two workers of two cores with four threads of one process.

    Each job runs once in either to warm up, and then alternately as often as there is time for.
    """
    figures = []
    rows = bench.events_at_most(CLUSTER_EVENTS)
    until_s = time.monotonic() + CLUSTER_S
    with (
        events.made(rows, bench.events_in) as lake,
        tempfile.TemporaryDirectory(prefix="rmbb-") as name,
        SparkCluster(Path(name) / "cluster", 2, cores=2, memory="2g") as nodes,
        spark("local[4]", lake, Path(name) / "local", SPARK_MEMORY) as alone,
        spark(nodes.master, lake, Path(name) / "on", "1g", nodes.pids) as spread,
    ):
        ratios, peaks = [], []
        for number, job in enumerate(MUST):
            share_s = (until_s - time.monotonic()) / (len(MUST) - number)
            both = _in_turns(spread, alone, job, share_s, until_s, min(bench.runs, MOST_RUNS))
            ratio = statistics.median(a.s / b.s for a, b in both)
            figures.append(Figure(f"{job}: of local[4]'s time", ratio, "times"))
            ratios.append(ratio)
            peaks += [a.peak_mib for a, _ in both]
    mean = statistics.geometric_mean(ratios)
    figures = [
        Figure("all: of local[4]'s time", mean, "times", must=1.3, lower_is_better=True),
        *figures,
        Figure("memory of the cluster", max(peaks), "MiB"),
    ]
    bound = "" if bench.events_given else " (at most, without --events)"
    title = f"{rows:,} events{bound}, two workers of two cores beside local[4]"
    return Row("analytics-cluster", title, figures)


def _in_turns(
    one: Spark, other: Spark, job: str, share_s: float, until_s: float, most: int
) -> list[tuple[Cost, Cost]]:
    """Return the costs of a job in two sessions: once, and more often if its share allows.

    Raises:
        TargetError: The time of the whole row is over.
    """
    share_until_s = time.monotonic() + share_s
    found: list[tuple[Cost, Cost]] = []
    pair_s = 0.0
    for number in range(most + 1):  # the first one warms up
        began_s = time.monotonic()
        if number > 1 and began_s + pair_s > share_until_s:
            break
        pair = (
            one.run(job, until_s - time.monotonic()),
            other.run(job, until_s - time.monotonic()),
        )
        pair_s = time.monotonic() - began_s
        told = "warm-up" if not number else f"{pair[0].s / pair[1].s:.2f} times"
        print(
            f"  {job}: {pair[0].s:.1f} s and {pair[1].s:.1f} s, {told}", file=sys.stderr, flush=True
        )
        if number:
            found.append(pair)
    return found


def stream(bench: Bench) -> Row:
    """Measure the time from the arrival of a file, one each second, until its rows are counted."""
    files = bench.many(FILES)
    waits_s = []
    with tempfile.TemporaryDirectory(prefix="rmbb-") as name, live.running(Path(name)) as lake:
        for number in range(files + WARM_UP_FILES):
            began_s = time.monotonic()
            moment_us = lake.put()
            lake.counted(moment_us)
            if number >= WARM_UP_FILES:
                waits_s.append(time.time() - moment_us / 1e6)
            time.sleep(max(0.0, began_s + 1.0 - time.monotonic()))
        expected = (files + WARM_UP_FILES + 1) * live.ROWS
        wrong = abs(lake.events() - expected)
    waits_s.sort()
    figures = [
        Figure("p50", statistics.median(waits_s), "s"),
        Figure("p99", waits_s[math.ceil(0.99 * files) - 1], "s", must=2.0, lower_is_better=True),
        Figure("longest", waits_s[-1], "s"),
        Figure("events lost or counted twice", wrong, must=0, lower_is_better=True),
    ]
    title = f"{files} files of {live.ROWS:,} events, one a second: from the newest to its minute"
    return Row("analytics-stream", title, figures)


def _alternate(ours: Spark, base: Duckdb, job: str, runs: int) -> tuple[list[Cost], list[Cost]]:
    mine, theirs = [], []
    for number in range(runs):
        if number % 2:
            mine.append(ours.run(job))
            theirs.append(base.run(job))
        else:
            theirs.append(base.run(job))
            mine.append(ours.run(job))
    return mine, theirs


def _described(job: str, mine: list[Cost], theirs: list[Cost]) -> list[Figure]:
    return [
        figure
        for name, group in (("Spark", mine), ("DuckDB", theirs))
        for figure in (
            Figure(f"{job}: {name}", statistics.median(each.s for each in group), "s"),
            Figure(f"{job}: {name}, CPU", statistics.median(each.cpu_s for each in group), "s"),
        )
    ]


def _remarks(others: float, judged: bool) -> list[str]:
    found = []
    if others > DISTURBED:
        found.append(f"others used up to {others:.1f} cores meanwhile")
    if not judged:
        found.append("too few events to judge by: --events 50000000")
    return found
