"""Row about the cost of recording events: in the loop of the worker, and in the first row."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.measure import Sample, median_ratio, side_by_side, throughput
from tests.bench.recording import measure
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target

RECORDING = {"RMB_ANALYTICS__RECORD": "1"}
MUST_NS = 1000.0
"""Maximum nanoseconds of the loop's time for an event."""
MUST_STALL_MS = 10.0
PUBLISHED_S = 1.5
"""Seconds until the workers have published their figures, which they do each second."""
SWITCHED_RUNS = 10


class Slice(NamedTuple):
    """Figures of a worker while its recorder was on, or off; see `tests.bench.switching`."""

    on: bool
    us: float
    messages: int


def recorder(bench: Bench) -> Row:
    """Compare the first row with the recorder and without; measure the cost of one event."""
    cost = measure()
    with (
        bench.relay(FIRST_ROW.twins, RECORDING) as on,
        bench.relay(FIRST_ROW.twins) as off,
        bench.generators(2) as generators,
    ):
        on, off = replace(on, name="recorded"), replace(off, name="unrecorded")

        def once(target: Target) -> Sample:
            return throughput(target, generators, FIRST_ROW, bench.seconds)

        mine, theirs = side_by_side([on, off], bench.runs, once, bench.most_rounds)
        time.sleep(PUBLISHED_S)
        written, lost = _written(on)
    slices = _switched(bench)
    threes = [
        (before, with_it, after)
        for before, with_it, after in zip(slices, slices[1:], slices[2:], strict=False)
        if with_it.on and not before.on and not after.on
    ]
    kept = [(a.us + b.us) / 2 / with_it.us for a, with_it, b in threes]
    rates = [2 * with_it.messages / (a.messages + b.messages) for a, with_it, b in threes]
    figures = [
        *_switched_figures("rate, switched within one worker", rates),
        *_switched_figures("messages per CPU second of its loop", kept),
        *(
            Figure(title, statistics.median(each.us for each in slices if each.on is on), "us")
            for title, on in (
                ("CPU of the worker's loop for a message", True),
                ("... without the recorder", False),
            )
        ),
        Figure("rate, beside another relay without", rate_ratio(mine, theirs), "of that without"),
        Figure(
            "messages per CPU second of all, the compactor among them",
            median_ratio(mine, theirs, lambda sample: sample.messages_per_cpu_s),
            "of that without",
        ),
        _bounded("an event, handed over", cost["handed_ns"]),
        _bounded("... packed by the worker", cost["memory_ns"]),
        Figure("... of two sessions that never met", cost["strangers_ns"], "ns"),
        Figure("... of what is read from a stream", cost["stream_ns"], "ns"),
        _bounded(
            "... of a message that waits (three events)",
            (2 * cost["memory_ns"] + cost["stream_ns"]) / 3,
        ),
        Figure(
            "longest stall, beyond that of an idle loop",
            max(0.0, cost["stall_ms"] - cost["idle_stall_ms"]),
            "ms",
            must=MUST_STALL_MS,
            lower_is_better=True,
        ),
        Figure("events written", written),
        Figure("events lost", lost + cost["lost"], must=0, lower_is_better=True),
        *described("recorded", mine),
        *described("unrecorded", theirs),
        faults([*mine, *theirs]),
    ]
    title = "the first row with all events recorded, beside the same without"
    samples = as_json(recorded=mine, unrecorded=theirs)
    return Row("recorder", title, figures, samples, remarks(mine, theirs))


def _switched_figures(title: str, found: list[float]) -> list[Figure]:
    return [
        Figure(title, statistics.median(found), "of that without", must=0.95),
        Figure("... standard error", statistics.stdev(found) / math.sqrt(len(found))),
    ]


def _bounded(name: str, cost_ns: float) -> Figure:
    return Figure(name, cost_ns, "ns", must=MUST_NS, lower_is_better=True)


def _switched(bench: Bench) -> list[Slice]:
    """Measure the first row with a worker whose recorder is switched off and on all the time."""
    with tempfile.TemporaryDirectory(prefix="rmbb-") as folder:
        told = Path(folder) / "slices"
        options = replace(bench.options, environment=RECORDING, switched=told)
        with (
            replace(bench, options=options).relay(FIRST_ROW.twins) as ours,
            bench.generators() as generators,
        ):
            throughput(ours, generators, FIRST_ROW, SWITCHED_RUNS * bench.seconds)
        return [Slice(*json.loads(line)) for line in told.read_text().splitlines()]


def _written(relay: Target) -> tuple[float, float]:
    """Return the numbers of events written to segments, and lost."""
    written = lost = 0.0
    for worker in relay.workers().values():
        for series, value in json.loads(worker["metrics"]).items():
            written += value if series.startswith("relay_analytics_events_total") else 0
            lost += value if series.startswith("relay_analytics_lost_total") else 0
    return written, lost
