"""Rows that compare sessions on streams with sessions on separate websockets, both at the relay."""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.measure import median_ratio
from tests.bench.rows.sessions import FIRST_IDLE_TWIN, LOG_INS, REST_S, open_bare, worker_memory
from tests.bench.rows.throughput import FIRST_ROW, p99

SETTINGS = {
    "RMB_RELAY__HANDSHAKES_PER_IP_PER_S": "0",  # all streams have one address
    "RMB_RELAY__IDLE_TIMEOUT_S": "3600",
}


def pairs(bench: Bench) -> Row:
    """Compare the first row's load on two connections with the same on a hundred websockets."""
    with (
        bench.relay(FIRST_ROW.twins, SETTINGS) as relay,
        bench.generators() as generators,
    ):
        ours = replace(relay, name="streams", protocol="mux")
        base = replace(relay, name="websockets")
        mine, theirs = bench.compare(ours, base, generators, FIRST_ROW)
    targets = [
        Figure("rate", rate_ratio(mine, theirs), "of websockets", must=0.9, goal=1.2),
        Figure("p99", median_ratio(mine, theirs, p99), "of websockets", lower_is_better=True),
    ]
    figures = [*targets, *described("streams", mine), *described("websockets", theirs)]
    title = "50 pairs, window 8, 256 B, on two connections and on 100 websockets"
    samples = as_json(streams=mine, websockets=theirs)
    return Row("mux-pairs", title, [*figures, faults(mine)], samples, remarks(mine, theirs))


def idle(bench: Bench) -> Row:
    """Compare the memory of idle sessions, and sign-ins, with the same on websockets."""
    count = bench.many(LOG_INS)
    twins = list(range(FIRST_IDLE_TWIN, FIRST_IDLE_TWIN + count))
    sign_ins: dict[str, list[float]] = {"streams": [], "websockets": []}
    memory_kib: dict[str, float] = {}
    kept = 0
    with bench.relay(twins, SETTINGS) as relay:
        targets = [
            replace(relay, name="streams", protocol="mux"),
            replace(relay, name="websockets"),
        ]
        for run in range(bench.runs):
            for target in targets:
                with bench.generators() as generators:
                    before = worker_memory(target)
                    sign_ins[target.name].append(open_bare(target, generators, twins))
                    if not run:
                        each = (worker_memory(target) - before) / count / 1024
                        memory_kib[target.name] = each
                        kept += sum(generators.all("still_there"))
                time.sleep(REST_S)
    ratio = statistics.median(
        mine / theirs
        for mine, theirs in zip(sign_ins["streams"], sign_ins["websockets"], strict=True)
    )
    figures = [
        Figure("sign-ins per second", ratio, "of websockets", must=1.5, goal=3.0),
        Figure("sessions still open", kept, must=2 * count),
        Figure("streams: sign-ins per second", statistics.median(sign_ins["streams"])),
        Figure("websockets: sign-ins per second", statistics.median(sign_ins["websockets"])),
        Figure("streams: worker memory each", memory_kib["streams"], "KiB"),
        Figure("websockets: worker memory each", memory_kib["websockets"], "KiB"),
    ]
    return Row("mux-idle", f"{count:,} sessions on two connections and on websockets", figures)
