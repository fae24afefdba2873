"""Rows about two relays: messages between them, and a partner relay that was unavailable.

Everything of both relays runs on the two server cores: workers, Celery, sites and two Valkeys.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import redis

from relay.queues import keys
from tests.bench import federated
from tests.bench.bench import Bench, as_json, described, faults, rate, rate_ratio, remarks
from tests.bench.figures import Figure, Row
from tests.bench.generators import Generators
from tests.bench.layout import layout
from tests.bench.measure import (
    FAULTS,
    Load,
    Sample,
    median,
    median_ratio,
    pair_load,
    side_by_side,
    throughput,
)
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target, TargetError
from tests.bench.twins import FIRST_TWIN

SIGNED = replace(FIRST_ROW, signed_per_s=20_000)
ONE_PAIR = pair_load(1, window=1)
QUEUED = 100_000
QUEUE_BOUND = 200_000
"""Bound of the first relay's outbox: `QUEUED` messages fit even if their count is overestimated."""
DRAIN_TIMEOUT_S = 300.0
POLL_S = 0.01
WARM_UP_S = 5.0
LOCAL = Load(tuple((twin + 1_000, twin + 1_002) for twin in range(1_000, 1_200, 4)), window=8)
"""The load of the first row among twins that all use the first relay."""


def crossing_signed(bench: Bench) -> Row:
    """Measure what the reference does too: the receiving relay checks every signature."""
    targets = {"must": 0.4, "goal": 0.6}
    return _crossing(bench, "relays-signed", SIGNED, targets, "every envelope signed and checked")


def crossing_trusted(bench: Bench) -> Row:
    """Measure with a receiving relay that trusts the sending one."""
    return _crossing(bench, "relays-trusted", FIRST_ROW, {"must": 0.4}, "partner trusted")


def crossing_single(bench: Bench) -> Row:
    """Measure with one POST for each message, as towards a reference relay."""
    targets = {"must": 0.15, "goal": 0.2}
    settings = federated.environment(batch="0")
    return _crossing(bench, "relays-single", SIGNED, targets, "signed, batch form off", settings)


def _crossing(
    bench: Bench,
    name: str,
    load: Load,
    targets: Mapping[str, float],
    title: str,
    settings: Mapping[str, str] | None = None,
) -> Row:
    options = replace(bench.options, environment={**bench.options.environment, **(settings or {})})
    with (
        bench.yardstick() as base,
        federated.pair(layout().server, options, load.twins, trusted=not load.signed_per_s) as ours,
        bench.generators() as generators,
    ):
        _warm_up(ours, generators, load)
        mine, theirs = _compare(bench, ours, base, generators, load)
    figures = [
        Figure("rate", rate_ratio(mine, theirs), "B", **targets),
        faults(mine),
        *described("ours", mine),
        *described("B", theirs),
    ]
    return Row(
        name,
        f"50 pairs crossing two relays, window {load.window}, 256 B, {title}",
        figures,
        as_json(ours=mine, B=theirs),
        remarks(mine, theirs),
    )


def _warm_up(ours: Target, generators: Generators, load: Load) -> None:
    """Send the first messages: they start drainers, and reveal what the partner relay offers."""
    throughput(ours, generators, load, WARM_UP_S)


def _compare(
    bench: Bench, ours: Target, base: Target, generators: Generators, load: Load
) -> tuple[list[Sample], list[Sample]]:
    """Measure as `Bench.compare`; B carries the same bytes without signing or checking."""
    bare = replace(load, signed_per_s=0)
    mine, theirs = side_by_side(
        [ours, base],
        bench.runs,
        lambda target: throughput(
            target, generators, load if target is ours else bare, bench.seconds
        ),
        bench.most_rounds,
    )
    return mine, theirs


def crossing_alone(bench: Bench) -> Row:
    """Compare the latency of one message through two idle relays with that through one."""
    load = replace(ONE_PAIR, signed_per_s=3_000)
    local = Load(((FIRST_TWIN, FIRST_TWIN + 2),), window=1)
    twins = sorted({*load.twins, *local.twins})
    with (
        federated.pair(layout().server, bench.options, twins, trusted=False) as ours,
        bench.generators(1) as generators,
    ):
        _warm_up(ours, generators, load)
        crossing, within = side_by_side(
            [load, local],
            bench.runs,
            lambda each: throughput(ours, generators, each, bench.seconds),
            bench.most_rounds,
        )
    figures = [
        Figure(
            "p50",
            median_ratio(crossing, within, lambda sample: sample.latency.p50_us),
            "of local",
            must=5.0,
            lower_is_better=True,
        ),
        faults([*crossing, *within]),
        Figure("crossing: messages per wall second", median(crossing, rate)),
        Figure("crossing: p99", median(crossing, lambda s: s.latency.p99_us) / 1000, "ms"),
        Figure("local: p50", median(within, lambda s: s.latency.p50_us) / 1000, "ms"),
    ]
    return Row(
        "relays-alone",
        "one pair crossing two relays, window 1, signed and checked",
        figures,
        as_json(crossing=crossing, local=within),
        remarks(crossing, within),
    )


def partner_away(bench: Bench) -> Row:
    """Queue messages for a relay that is down, then start it.

    Local traffic is measured before, and while the messages are queued.
    """
    load = replace(FIRST_ROW, window=1)
    messages = bench.many(QUEUED) // len(load.pairs)
    total = messages * len(load.pairs)
    twins = sorted({*load.twins, *LOCAL.twins})
    domains = federated.Domains()
    options = replace(
        bench.options,
        environment={
            **bench.options.environment,
            **federated.environment(max_messages=str(QUEUE_BOUND)),
        },
    )
    cores = layout().server
    with (
        bench.yardstick() as base,
        federated.first_relay(cores, options, domains, twins) as first,
        bench.generators() as mail,
        bench.generators() as local,
    ):
        without = bench.compare(first, base, local, LOCAL)
        _queue(first, mail, load, messages)
        meanwhile = bench.compare(first, base, local, LOCAL)
        with ThreadPoolExecutor(1) as watcher:
            emptied = watcher.submit(_emptied_s, first)
            with federated.second_relay(cores, options, domains, twins, trusting=True) as second:
                wrong = _drain(second, mail, load)
                drained_s = emptied.result()
    kept = rate_ratio(*meanwhile) / rate_ratio(*without)
    base_rate = statistics.median(rate(sample) for sample in [*without[1], *meanwhile[1]])
    figures = [
        Figure("drained", total / drained_s / base_rate, "B", must=0.4),
        Figure("local traffic keeps meanwhile", kept, must=0.9),
        Figure("lost, doubled, out of order, errors", wrong, must=0, lower_is_better=True),
        Figure("drained per wall second", total / drained_s),
        Figure("B, first row: messages per wall second", base_rate),
        *described("local, partner unknown", without[0]),
        *described("local, mail waiting", meanwhile[0]),
    ]
    return Row(
        "partner-away",
        f"partner down: {total:,} queued, then back (trusted); local traffic beside it",
        figures,
        as_json(
            ours_without=without[0],
            B_without=without[1],
            ours_meanwhile=meanwhile[0],
            B_meanwhile=meanwhile[1],
        ),
        remarks(*without, *meanwhile),
    )


def _queue(first: Target, mail: Generators, load: Load, messages: int) -> None:
    """Send to twins of the partner relay, until all messages are stored."""
    shares = mail.share(load.pairs)
    senders = [[sender for sender, _ in share] for share in shares]
    mail.each("connect", [{"url": first.url, "twins": twins} for twins in senders])
    mail.each(
        "flows",
        [{"pairs": share, "payload_size_bytes": load.payload_size_bytes} for share in shares],
    )
    mail.all("bulk", messages=messages)


def _drain(second: Target, mail: Generators, load: Load) -> int:
    """Let the receivers read everything; return how many messages went wrong."""
    receivers = [[receiver for _, receiver in share] for share in mail.share(load.pairs)]
    accounts = mail.each(
        "drain",
        [{"url": second.url, "twins": twins, "timeout_s": DRAIN_TIMEOUT_S} for twins in receivers],
    )
    wrong = sum(each["account"][name] for each in accounts for name in FAULTS)
    return wrong + sum(
        sum(each[name].values()) for each in accounts for name in ("notices", "closes")
    )


def _emptied_s(first: Target) -> float:
    """Return the seconds from the first message that leaves the outbox to the last."""
    assert first.redis is not None
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    with first.redis.client() as client:
        full = left = _waiting(client)
        began = time.monotonic()
        while left and time.monotonic() < deadline:
            time.sleep(POLL_S)
            left = _waiting(client)
            if left == full:
                began = time.monotonic()
    if left:
        raise TargetError(f"{left:,} of {full:,} messages are left in the outbox")
    return time.monotonic() - began


def _waiting(client: redis.Redis) -> int:
    return sum(int(client.xlen(keys.outbox(shard))) for shard in range(keys.OUTBOX_SHARDS))
