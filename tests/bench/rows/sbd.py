"""SBD beside B: packets between keys of one worker, and of two."""

from __future__ import annotations

from dataclasses import replace

from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.measure import Load, Sample, median, median_ratio
from tests.bench.rows.throughput import FIRST_ROW, LOADS, p99

SETTINGS = {
    "RMB_SBD__ENABLED": "1",
    "RMB_SBD__LIMIT_KBIT_PER_S": "0",
    "RMB_SBD__IDLE_MS": "3600000",  # receivers of the load say nothing
}


def _beside_b(bench: Bench, load: Load, processes: int = 1) -> tuple[list[Sample], list[Sample]]:
    with (
        bench.yardstick() as base,
        bench.relay([], SETTINGS, processes=processes) as relay,
        bench.generators() as generators,
    ):
        return bench.compare(replace(relay, sbd=True), base, generators, load)


def _row(
    name: str, title: str, targets: list[Figure], mine: list[Sample], theirs: list[Sample]
) -> Row:
    figures = [*targets, *described("ours", mine), *described("B", theirs), faults(mine)]
    return Row(name, title, figures, as_json(ours=mine, B=theirs), remarks(mine, theirs))


def pairs(bench: Bench) -> Row:
    """The first row's load as packets of SBD."""
    mine, theirs = _beside_b(bench, FIRST_ROW)
    slow = median(mine, p99) / median(theirs, lambda sample: sample.latency.p50_us)
    targets = [
        Figure("rate", rate_ratio(mine, theirs), "B", must=2.3, goal=3.5),
        Figure("p99", slow, "of B's p50", must=1.0, goal=0.5, lower_is_better=True),
    ]
    return _row("sbd-pairs", "SBD: 50 pairs, window 8, 256 B, one worker", targets, mine, theirs)


def crossing(bench: Bench) -> Row:
    """Two workers: about half of the pairs cross."""
    mine, theirs = _beside_b(bench, FIRST_ROW, processes=2)
    targets = [Figure("rate", rate_ratio(mine, theirs), "B", must=1.5, goal=2.5)]
    title = "SBD: 50 pairs, window 8, 256 B, two workers"
    return _row("sbd-crossing", title, targets, mine, theirs)


def large(bench: Bench) -> Row:
    """16 KiB packets."""
    mine, theirs = _beside_b(bench, LOADS["large"])
    targets = [Figure("rate", rate_ratio(mine, theirs), "B", must=1.5, goal=3.0)]
    return _row("sbd-large", "SBD: 50 pairs, window 8, 16 KiB", targets, mine, theirs)


def single(bench: Bench) -> Row:
    """One packet at a time."""
    mine, theirs = _beside_b(bench, LOADS["single"])
    ratio = median_ratio(mine, theirs, lambda sample: sample.latency.p50_us)
    targets = [Figure("p50", ratio, "B", must=1.2, goal=1.0, lower_is_better=True)]
    return _row("sbd-single", "SBD: one pair, window 1, 256 B", targets, mine, theirs)
