"""Row about queues of absent twins: how fast messages are stored, and how fast they are read."""

from __future__ import annotations

import statistics
from typing import Any

from tests.bench.bench import Bench, rate
from tests.bench.figures import Figure, Row
from tests.bench.generators import Generators
from tests.bench.measure import FAULTS, Load, pair_load, throughput
from tests.bench.rows.throughput import FIRST_ROW
from tests.bench.targets import Target

DRAIN_TIMEOUT_S = 120.0


def fill_and_drain(
    target: Target, generators: Generators, load: Load, messages: int
) -> dict[str, Any]:
    """Send to absent twins, then let them sign in and read.

    Queueing ends with the pongs that confirm that everything is stored. Draining begins with the
    first sign-in of a receiver, so it includes the log-ins, and ends with the last message.
    """
    shares = generators.share(load.pairs)
    senders = [[sender for sender, _ in share] for share in shares]
    receivers = [[receiver for _, receiver in share] for share in shares]
    generators.each("prepare", [{"twins": twins} for twins in receivers])
    generators.each("connect", [{"url": target.url, "twins": twins} for twins in senders])
    generators.each(
        "flows",
        [{"pairs": share, "payload_size_bytes": load.payload_size_bytes} for share in shares],
    )
    stored = generators.all("bulk", messages=messages)
    drained = generators.each(
        "drain",
        [{"url": target.url, "twins": twins, "timeout_s": DRAIN_TIMEOUT_S} for twins in receivers],
    )
    generators.each("leave", [{"twins": [*a, *b]} for a, b in zip(senders, receivers, strict=True)])
    total = messages * len(load.pairs)
    return {
        "messages": total,
        "queued_per_s": total / span_s(stored),
        "drained_per_s": total / span_s(drained),
        "accounts": [part["account"] for part in drained],
        "notices": [part["notices"] for part in drained],
        "closes": [part["closes"] for part in drained],
    }


def span_s(parts: list[dict[str, Any]]) -> float:
    """Return the seconds from the first beginning to the last end over all generators."""
    began = min(part["began_ns"] for part in parts)
    return (max(part["ended_ns"] for part in parts) - began) / 1e9


def wrong(parts: list[dict[str, Any]]) -> int:
    """Return the number of messages lost, doubled or out of order, and of errors."""
    count = 0
    for part in parts:
        for account in part["accounts"]:
            count += sum(account[name] for name in FAULTS)
        count += sum(sum(texts.values()) for texts in [*part["notices"], *part["closes"]])
    return count


def absent(bench: Bench) -> Row:
    """Measure 50 absent twins that get 1,000 messages each and then read them.

    Between these, the first row runs on B.
    """
    mail = pair_load(50, window=1)
    parts, base = [], []
    with (
        bench.yardstick() as yardstick,
        bench.relay(mail.twins) as ours,
        bench.generators() as generators,
    ):
        for _ in range(bench.runs):
            base.append(throughput(yardstick, generators, FIRST_ROW, bench.seconds))
            parts.append(fill_and_drain(ours, generators, mail, 1_000))

    def ratio(name: str) -> float:
        return statistics.median(
            part[name] / rate(sample) for part, sample in zip(parts, base, strict=True)
        )

    figures = [
        Figure("queueing", ratio("queued_per_s"), "B", must=3.5, goal=5.0),
        Figure("draining", ratio("drained_per_s"), "B", must=4.5, goal=8.0),
        Figure("lost, doubled, out of order, errors", wrong(parts), must=0, lower_is_better=True),
        Figure("queued per wall second", statistics.median(p["queued_per_s"] for p in parts)),
        Figure("drained per wall second", statistics.median(p["drained_per_s"] for p in parts)),
        Figure("B, first row: messages per wall second", statistics.median(map(rate, base))),
    ]
    return Row(
        "absent",
        "50 absent twins x 1,000 messages: queueing and draining",
        figures,
        {"ours": parts, "B": [sample.as_json() for sample in base]},
    )
