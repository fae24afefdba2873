"""Rows about several processes: messages between workers, a Redis outage, take-over by a worker."""

from __future__ import annotations

import os
import statistics
import time
from collections import defaultdict

from tests.bench import layout
from tests.bench.bench import Bench, as_json, described, faults, rate, remarks
from tests.bench.figures import Figure, Row
from tests.bench.generators import GeneratorProcess, Generators
from tests.bench.measure import Load, Sample, median, median_ratio, side_by_side, window_of
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target, TargetError
from tests.bench.twins import FIRST_TWIN

PAIRS = 48
"""Number of pairs: about the first row's 50, divisible by two generators and four directions."""
MOST_SESSIONS = 800
"""Sessions opened in search of enough on either worker, before the row gives up."""
OUTAGE_S = 5.0
OUTAGE_TIMEOUT_S = 60.0
TAKE_OVERS = 300
MOST_TRIES = 1_500
TAKE_OVER_TIMEOUT_S = 10.0


def crossing(bench: Bench) -> Row:
    """Compare one process with two, between which half of the pairs cross.

    Nothing is pinned: two workers, Redis and the load generators need all four cores. With fewer,
    the second worker has no core to work on, so its rate has no bound.
    """
    everywhere = frozenset(os.sched_getaffinity(0))
    must = 1.5 if len(everywhere) >= layout.FEWEST_CORES_TO_PIN else None
    twins = list(range(FIRST_TWIN, FIRST_TWIN + MOST_SESSIONS))
    with (
        bench.relay(twins, cores=everywhere, processes=1) as single,
        bench.relay(twins, cores=everywhere, processes=2) as double,
        Generators([None, None]) as generators,
    ):
        one, two = side_by_side(
            [single, double],
            bench.runs,
            lambda target: _crossing_sample(target, generators, twins, bench.seconds),
            bench.most_rounds,
        )
    lane_ratio = statistics.median(
        sample.lanes["crossing"].p99_us / sample.lanes["local"].p99_us for sample in two
    )
    p99_of_one = median(one, lambda sample: sample.latency.p99_us)
    crossing_p99 = median(two, lambda sample: sample.lanes["crossing"].p99_us)
    figures = [
        Figure("rate of two processes", median_ratio(two, one, rate), "of one", must=must),
        Figure("p99 crossing / p99 local", lane_ratio, must=2.0, lower_is_better=True),
        Figure("p99 crossing / p99 of one process", crossing_p99 / p99_of_one),
        *described("one process", one),
        *described("two processes", two),
        Figure("two processes: p99 crossing", crossing_p99 / 1000, "ms"),
        faults([*one, *two]),
    ]
    return Row(
        "crossing",
        "two processes, half of the pairs crossing (nothing pinned)",
        figures,
        as_json(one=one, two=two),
        remarks(one, two),
    )


def _crossing_sample(
    target: Target, generators: Generators, twins: list[int], seconds: float
) -> Sample:
    """Pair sessions by the worker that holds them, then measure."""
    kept: list[list[int]] = []
    flows = []
    for process, own in zip(generators.processes, generators.share(twins), strict=True):
        pairs, lanes, opened = _pair_up(target, process, own, PAIRS // len(generators.processes))
        used = {twin for pair in pairs for twin in pair}
        process.call("leave", twins=[twin for twin in opened if twin not in used])
        kept.append(sorted(used))
        flows.append({"pairs": pairs, "lanes": lanes, "payload_size_bytes": 256})
    generators.each("flows", flows)
    try:
        return window_of(target, generators, seconds, Load((), window=8))
    finally:
        generators.each("leave", [{"twins": used} for used in kept])


def _pair_up(
    target: Target, process: GeneratorProcess, twins: list[int], pairs: int
) -> tuple[list[tuple[int, int]], list[str], list[int]]:
    """Open sessions until half of the pairs can cross and both workers have the same load."""
    opened: list[int] = []
    step = 2 * pairs
    while len(opened) < len(twins):
        more = twins[len(opened) : len(opened) + step]
        process.call("connect", url=target.url, twins=more)
        opened += more
        by_worker: dict[str, list[int]] = defaultdict(list)
        holders = target.holders(opened)
        for twin in opened:
            by_worker[holders[twin]].append(twin)
        groups = list(by_worker.values())
        if len(target.workers()) == 1:
            only = groups[0]
            return list(zip(only[:pairs], only[pairs:], strict=False)), ["local"] * pairs, opened
        if len(groups) == 2 and min(map(len, groups)) >= pairs:
            return *_crossed(groups[0], groups[1], pairs), opened
    raise TargetError(f"the sessions landed on the workers as {[len(g) for g in groups]}")


def _crossed(
    left: list[int], right: list[int], pairs: int
) -> tuple[list[tuple[int, int]], list[str]]:
    """Choose a quarter of the pairs for each direction between two workers and for each worker."""
    left_twins, right_twins = iter(left), iter(right)
    chosen, lanes = [], []
    for _ in range(pairs // 4):
        chosen.append((next(left_twins), next(left_twins)))
        chosen.append((next(right_twins), next(right_twins)))
        chosen.append((next(left_twins), next(right_twins)))
        chosen.append((next(right_twins), next(left_twins)))
        lanes += ["local", "local", "crossing", "crossing"]
    return chosen, lanes


def outage(bench: Bench) -> Row:
    """Measure an outage: Redis is stopped cleanly under load, and started again after 5 s."""
    gaps_s, starts_s, accounts = [], [], []
    with bench.relay(FIRST_ROW.twins) as ours, bench.generators() as generators:
        assert ours.redis is not None
        for _ in range(bench.runs):
            shares = generators.share(FIRST_ROW.pairs)
            twins = [sorted({twin for pair in share for twin in pair}) for share in shares]
            generators.each("connect", [{"url": ours.url, "twins": own} for own in twins])
            generators.each(
                "flows", [{"pairs": share, "payload_size_bytes": 256} for share in shares]
            )
            generators.all("start", window=FIRST_ROW.window)
            time.sleep(2)
            ours.redis.stop()
            time.sleep(OUTAGE_S)
            generators.begin(
                "next_arrival", [{"timeout_s": OUTAGE_TIMEOUT_S}] * len(generators.processes)
            )
            start_ns = time.perf_counter_ns()
            ours.redis.start()
            back_ns = time.perf_counter_ns()
            arrivals = [at for at in generators.finish() if at is not None]
            first_ns = min(arrivals, default=back_ns + int(OUTAGE_TIMEOUT_S * 1e9))
            # A message may arrive before the new Redis has answered our own PING.
            gaps_s.append(max(0.0, (first_ns - back_ns) / 1e9))
            starts_s.append((first_ns - start_ns) / 1e9)
            time.sleep(2)
            accounts += generators.all("stop", timeout_s=OUTAGE_TIMEOUT_S)
            generators.each("leave", [{"twins": own} for own in twins])

    def total(name: str) -> int:
        return sum(account["account"][name] for account in accounts)

    figures = [
        Figure(
            "first delivery after Redis' return (slowest)",
            max(gaps_s),
            "s",
            must=1.0,
            lower_is_better=True,
        ),
        Figure("first delivery after Redis' process was started (slowest)", max(starts_s), "s"),
        Figure("lost", total("lost"), must=0, lower_is_better=True),
        Figure("out of order", total("out_of_order"), must=0, lower_is_better=True),
        Figure("doubled", total("duplicates")),
        Figure("messages", total("received")),
    ]
    notes = [
        f"{account['notices']} {account['closes']}"
        for account in accounts
        if account["notices"] or account["closes"]
    ]
    return Row(
        "outage",
        "Redis stopped for 5 s under the first row",
        figures,
        {"ours": [{"first_delivery_s": gap} for gap in gaps_s]},
        notes,
    )


def take_over(bench: Bench) -> Row:
    """Measure a sign-in on the other worker while the twin's old connection is healthy.

    Timed from the start of connecting to the first message on the new connection, so the sign-in
    is included.
    """
    wanted = bench.many(TAKE_OVERS)
    sender, receiver = FIRST_TWIN, FIRST_TWIN + 1
    elsewhere: list[dict[str, int]] = []
    same: list[dict[str, int]] = []
    with (
        bench.relay([sender, receiver], processes=2) as ours,
        bench.generators(1) as generators,
    ):
        process = generators.processes[0]
        process.call("connect", url=ours.url, twins=[sender, receiver])
        process.call("flows", pairs=[(sender, receiver)], payload_size_bytes=256)
        holder = ours.holders([receiver])[receiver]
        for _ in range(MOST_TRIES):
            if len(elsewhere) == wanted:
                break
            one = process.call(
                "take_over", url=ours.url, twin=receiver, timeout_s=TAKE_OVER_TIMEOUT_S
            )
            before, holder = holder, ours.holders([receiver])[receiver]
            (same if holder == before else elsewhere).append(one)
        account = process.call("settle", timeout_s=TAKE_OVER_TIMEOUT_S)["account"]
    if not elsewhere:
        raise TargetError(f"none of {MOST_TRIES} sign-ins landed on the other worker")
    times_ms = sorted(one["first_message_us"] / 1000 for one in elsewhere)

    def at(share: float) -> float:
        return times_ms[min(int(share * len(times_ms)), len(times_ms) - 1)]

    figures = [
        Figure("99 % within", at(0.99), "ms", must=100, lower_is_better=True),
        Figure("half within", at(0.5), "ms"),
        Figure("slowest", times_ms[-1], "ms"),
        Figure("take-overs to the other process", len(elsewhere)),
        Figure(
            "old connection closed, median",
            statistics.median(one["old_closed_us"] for one in elsewhere) / 1000,
            "ms",
        ),
        Figure(
            "sign-in alone (the upgrade), median",
            statistics.median(one["upgraded_us"] for one in elsewhere) / 1000,
            "ms",
        ),
        Figure(
            "on the same process, median",
            statistics.median(one["first_message_us"] for one in same) / 1000 if same else 0.0,
            "ms",
        ),
        Figure("lost", account["lost"], must=0, lower_is_better=True),
        Figure("out of order", account["out_of_order"], must=0, lower_is_better=True),
        Figure("doubled", account["duplicates"]),
    ]
    return Row("take-over", "take-over on another process", figures, {"ours": elsewhere})
