"""Rows that compare SBD with B: packets within one worker, and two; idle keys; and slow readers."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.measure import (
    Load,
    Sample,
    median,
    median_ratio,
    side_by_side,
    throughput,
)
from tests.bench.rows.floods import running_beside
from tests.bench.rows.sessions import (
    FIRST_IDLE_TWIN,
    IDLE_SESSIONS,
    LOG_INS,
    REST_S,
    open_bare,
    worker_memory,
)
from tests.bench.rows.throughput import FIRST_ROW, LOADS, beside_pure, p99
from tests.bench.targets import Target

SETTINGS = {
    "RMB_SBD__ENABLED": "1",
    "RMB_SBD__LIMIT_KBIT_PER_S": "0",
    "RMB_SBD__IDLE_MS": "3600000",  # receivers of the load send nothing
}

HALF_OPEN = 5_000


def _beside_b(bench: Bench, load: Load, processes: int = 1) -> tuple[list[Sample], list[Sample]]:
    with (
        bench.yardstick() as base,
        bench.relay([], SETTINGS, processes=processes) as relay,
        bench.generators() as generators,
    ):
        return bench.compare(replace(relay, protocol="sbd"), base, generators, load)


def _row(
    name: str, title: str, targets: list[Figure], mine: list[Sample], theirs: list[Sample]
) -> Row:
    figures = [*targets, *described("ours", mine), *described("B", theirs), faults(mine)]
    return Row(name, title, figures, as_json(ours=mine, B=theirs), remarks(mine, theirs))


def pairs(bench: Bench) -> Row:
    """Measure the first row's load as packets of SBD."""
    mine, theirs = _beside_b(bench, FIRST_ROW)
    slow = median(mine, p99) / median(theirs, lambda sample: sample.latency.p50_us)
    targets = [
        Figure("rate", rate_ratio(mine, theirs), "B", must=2.3, goal=3.5),
        Figure("p99", slow, "of B's p50", must=1.0, goal=0.5, lower_is_better=True),
    ]
    return _row("sbd-pairs", "SBD: 50 pairs, window 8, 256 B, one worker", targets, mine, theirs)


def crossing(bench: Bench) -> Row:
    """Measure two workers, between which about half of the pairs cross."""
    mine, theirs = _beside_b(bench, FIRST_ROW, processes=2)
    targets = [Figure("rate", rate_ratio(mine, theirs), "B", must=1.5, goal=2.5)]
    title = "SBD: 50 pairs, window 8, 256 B, two workers"
    return _row("sbd-crossing", title, targets, mine, theirs)


def large(bench: Bench) -> Row:
    """Measure 16 KiB packets."""
    mine, theirs = _beside_b(bench, LOADS["large"])
    targets = [Figure("rate", rate_ratio(mine, theirs), "B", must=1.5, goal=3.0)]
    return _row("sbd-large", "SBD: 50 pairs, window 8, 16 KiB", targets, mine, theirs)


def single(bench: Bench) -> Row:
    """Measure one packet at a time."""
    mine, theirs = _beside_b(bench, LOADS["single"])
    ratio = median_ratio(mine, theirs, lambda sample: sample.latency.p50_us)
    targets = [Figure("p50", ratio, "B", must=1.2, goal=1.0, lower_is_better=True)]
    return _row("sbd-single", "SBD: one pair, window 1, 256 B", targets, mine, theirs)


def compiled(bench: Bench) -> Row:
    """Compare the first row's load as packets in the compiled form and in the pure one."""
    title = "SBD: 50 pairs, window 8, 256 B, one worker"
    return beside_pure(bench, "sbd-compiled", title, "sbd", SETTINGS, must=1.2)


def idle(bench: Bench) -> Row:
    """Measure the memory of idle keys and of handshakes that do not end, and log-ins per second."""
    count, half_open = bench.many(IDLE_SESSIONS), bench.many(HALF_OPEN)
    twins = list(range(FIRST_IDLE_TWIN, FIRST_IDLE_TWIN + count))
    log_ins: dict[str, list[float]] = {"ours": [], "B": []}

    def stay(target: Target, some: list[int], signs: bool = True) -> tuple[float, int]:
        """Open connections; return the worker's KiB for each, and how many stayed open."""
        with bench.generators() as generators:
            before = worker_memory(target)
            open_bare(target, generators, some, signs=signs)
            each_kib = (worker_memory(target) - before) / len(some) / 1024
            return each_kib, sum(generators.all("still_there"))

    with bench.relay([], SETTINGS) as relay:  # a separate relay: memory they free is reused
        half_open_kib, kept = stay(replace(relay, protocol="sbd"), twins[:half_open], signs=False)
    with bench.yardstick() as base, bench.relay([], SETTINGS) as relay:
        ours = replace(relay, protocol="sbd")
        base_kib, _ = stay(base, twins)
        idle_kib, stayed = stay(ours, twins)
        kept += stayed
        time.sleep(REST_S)
        for _ in range(bench.runs):
            for target in (base, ours):
                with bench.generators() as generators:
                    some = twins[: min(count, LOG_INS)]
                    log_ins[target.name].append(open_bare(target, generators, some))
                time.sleep(REST_S)
    ratio = statistics.median(
        mine / theirs for mine, theirs in zip(log_ins["ours"], log_ins["B"], strict=True)
    )
    figures = [
        Figure("worker memory each", idle_kib, "KiB", must=16, goal=10, lower_is_better=True),
        Figure("signed log-ins, against unsigned accepts", ratio, "B", must=0.8, goal=1.3),
        Figure("connections still open", kept, must=count + half_open),
        Figure(f"{half_open:,} half-open: worker memory each", half_open_kib, "KiB"),
        Figure("B: worker memory each", base_kib, "KiB"),
        Figure("ours: log-ins per second", statistics.median(log_ins["ours"])),
        Figure("B: accepts per second", statistics.median(log_ins["B"])),
    ]
    return Row("sbd-idle", f"SBD: {count:,} idle keys, and log-ins", figures)


def slow(bench: Bench) -> Row:
    """Compare the first row beside readers that read nothing, and without, alternately."""
    told: list[dict[str, float]] = []
    with bench.relay([], SETTINGS) as relay, bench.generators() as generators:

        def once(target: Target) -> Sample:
            if target.name == "alone":
                return throughput(target, generators, FIRST_ROW, bench.seconds)
            with running_beside("tests.bench.sbd_slow", {"url": target.url}, told):
                return throughput(target, generators, FIRST_ROW, bench.seconds)

        targets = [replace(relay, name=name, protocol="sbd") for name in ("beside", "alone")]
        mine, theirs = side_by_side(targets, bench.runs, once, bench.most_rounds)
    growth = median_ratio(mine, theirs, p99)
    figures = [
        Figure("rate kept", rate_ratio(mine, theirs), must=0.95),
        Figure("p99", growth, "of that without"),
        Figure("readers dropped", sum(each["dropped"] for each in told)),
        Figure("packets to slow readers", sum(each["sent"] for each in told)),
        *described("beside", mine),
        *described("alone", theirs),
        faults([*mine, *theirs]),
    ]
    samples = as_json(beside=mine, alone=theirs)
    title = "SBD: 50 pairs beside readers that read nothing, in turns with the same without"
    return Row("sbd-slow", title, figures, samples, remarks(mine, theirs))
