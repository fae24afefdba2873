"""Row about the cost of tracing the messages of one busy twin."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from relay.queues import keys
from relay.trace.bounds import MAX_LIFETIME_S
from relay.trace.orders import Kind, Order
from tests.bench.bench import Bench, as_json, described, faults, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.measure import Sample, median_ratio, side_by_side, throughput
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target, TargetError

ORDER = "bench"
IN_FORCE_S = 10.0
POLL_S = 0.05


def traced(bench: Bench) -> Row:
    """Compare the first row with a trace of one of its hundred twins, and without."""
    with bench.relay(FIRST_ROW.twins) as relay, bench.generators(2) as generators:
        on = replace(relay, name="traced")
        off = replace(relay, name="untraced")

        def once(target: Target) -> Sample:
            _order(relay, FIRST_ROW.twins[0] if target is on else None)
            return throughput(target, generators, FIRST_ROW, bench.seconds)

        mine, theirs = side_by_side([on, off], bench.runs, once, bench.most_rounds)
        noted, skipped = _counted(relay)
    figures = [
        Figure("rate", rate_ratio(mine, theirs), "of that without", must=0.95),
        Figure(
            "messages per CPU second",
            median_ratio(mine, theirs, lambda sample: sample.messages_per_cpu_s),
            "of that without",
        ),
        Figure("events noted", noted),
        Figure("messages skipped, for the rate's sake", skipped),
        *described("traced", mine),
        *described("untraced", theirs),
        faults([*mine, *theirs]),
    ]
    title = "the first row with a trace of one busy twin, beside the same without"
    samples = as_json(traced=mine, untraced=theirs)
    return Row("traced", title, figures, samples, remarks(mine, theirs))


def _order(relay: Target, twin: int | None) -> None:
    """Publish a trace order, or withdraw it, and wait until all workers follow."""
    assert relay.redis is not None
    field = f"trace:{ORDER}"
    with relay.redis.client() as client:
        if twin is None:
            client.hdel(keys.CONTROL, field)
        else:
            until = time.time() + MAX_LIFETIME_S
            client.hset(keys.CONTROL, field, Order(ORDER, Kind.TWIN, str(twin), until).encode())
        client.hincrby(keys.CONTROL, "version", 1)
    deadline = time.monotonic() + IN_FORCE_S
    while not all(
        json.loads(worker["metrics"])["relay_trace_on"] == float(twin is not None)
        for worker in relay.workers().values()
    ):
        if time.monotonic() > deadline:
            raise TargetError("the trace is not in force")
        time.sleep(POLL_S)


def _counted(relay: Target) -> tuple[int, int]:
    assert relay.redis is not None
    with relay.redis.client() as client:
        found = client.hgetall(keys.trace_figures(ORDER))
    if not found:
        raise TargetError("nothing was traced")
    return int(found.get(b"events", 0)), int(found.get(b"skipped", 0))
