"""What it costs to record events: in the loop of the worker, and in the first row."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import replace

from tests.bench import layout
from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.measure import Sample, median_ratio, side_by_side, throughput
from tests.bench.recording import measure
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target

RECORDING = {"RMB_ANALYTICS__RECORD": "1"}
MUST_NS = 1000.0
"""An event, of the loop's time."""
MUST_STALL_MS = 10.0
PUBLISHED_S = 1.5
"""Workers publish their figures each second."""


def recorder(bench: Bench) -> Row:
    """The first row with the recorder on, beside another relay without; and an event by itself."""
    cost = measure()
    with (
        bench.relay(FIRST_ROW.twins, RECORDING) as on,
        bench.relay(FIRST_ROW.twins) as off,
        bench.generators(2) as generators,
    ):
        on, off = replace(on, name="recorded"), replace(off, name="unrecorded")

        spent: dict[str, list[float]] = {on.name: [], off.name: []}

        def once(target: Target) -> Sample:
            before_s, before = _worker_cpu_s(target), _messages(target)
            sample = throughput(target, generators, FIRST_ROW, bench.seconds)
            time.sleep(PUBLISHED_S)
            used_s, messages = _worker_cpu_s(target) - before_s, _messages(target) - before
            spent[target.name].append(used_s / messages * 1e6)
            return sample

        mine, theirs = side_by_side([on, off], bench.runs, once, bench.most_rounds)
        written, lost = _written(on)
    on_us, off_us = (statistics.median(spent[name]) for name in (on.name, off.name))
    kept = statistics.median(
        without / with_it for with_it, without in zip(spent[on.name], spent[off.name], strict=True)
    )
    figures = [
        Figure("rate", rate_ratio(mine, theirs), "of that without", must=0.95),
        Figure("messages per CPU second of the worker", kept, "of that without", must=0.95),
        Figure("CPU of the worker for a message", on_us, "us"),
        Figure("... without the recorder", off_us, "us"),
        Figure(
            "messages per CPU second of all, the compactor among them",
            median_ratio(mine, theirs, lambda sample: sample.messages_per_cpu_s),
            "of that without",
        ),
        _bounded("an event", cost["memory_ns"]),
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


def _bounded(name: str, cost_ns: float) -> Figure:
    return Figure(name, cost_ns, "ns", must=MUST_NS, lower_is_better=True)


def _worker_cpu_s(relay: Target) -> float:
    """CPU time of the worker and its threads, without the compactor beside it."""
    return sum(layout.cpu_s(pid) for pid in relay.worker_pids)


def _messages(relay: Target) -> float:
    """Messages its workers delivered so far, as they publish it."""
    return sum(
        json.loads(worker["metrics"])["relay_message_tx"] for worker in relay.workers().values()
    )


def _written(relay: Target) -> tuple[float, float]:
    """Events in segments, and lost."""
    written = lost = 0.0
    for worker in relay.workers().values():
        for series, value in json.loads(worker["metrics"]).items():
            written += value if series.startswith("relay_analytics_events_total") else 0
            lost += value if series.startswith("relay_analytics_lost_total") else 0
    return written, lost
