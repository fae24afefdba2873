"""One measurement: sign in, let messages run for some seconds, read CPU, memory and latencies.

`throughput` measures one target once; `side_by_side` alternates targets over several runs, since
the yardstick itself varies by a fifth from run to run on a shared machine.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

from tests.bench import layout
from tests.bench.generators import Generators
from tests.bench.targets import Target
from tests.bench.twins import FIRST_TWIN

Measured = TypeVar("Measured")

WARM_UP_S = 1.0
DISTURBED_LIMIT = 0.15
"""Number of cores used by others (programs of this machine, and other virtual machines through
steal) above which a measurement is disturbed. Others then affect latencies and the speed of two
processes that wait for each other; the yardstick, one process, suffers less from a busy second
core."""
FAULTS = ("lost", "duplicates", "out_of_order", "strays")
MOST_ROUNDS = 3
"""Maximum number of rounds in search of calm ones, in units of the wanted runs."""
SETTLE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Load:
    """Pairs of senders and receivers, and the messages between them."""

    pairs: tuple[tuple[int, int], ...]  # (sender, receiver) twins
    window: int
    payload_size_bytes: int = 256
    signed_per_s: int = 0
    """Messages per second whose valid signatures are made before the measurement, for relays that
    check messages of others: the load generators may share the relays' cores. 0: not signed."""

    @property
    def twins(self) -> list[int]:
        return sorted({twin for pair in self.pairs for twin in pair})


def pair_load(pairs: int, window: int, payload_size_bytes: int = 256) -> Load:
    """Return a load of disjoint pairs, each of which sends in one direction."""
    first = FIRST_TWIN
    return Load(
        tuple((first + 2 * index, first + 2 * index + 1) for index in range(pairs)),
        window,
        payload_size_bytes,
    )


@dataclass
class Latency:
    """Percentiles, in microseconds, of the time from sending to arrival at the receiving client."""

    p50_us: int
    p99_us: int
    p999_us: int

    @classmethod
    def of(cls, counts: Counter[int]) -> Latency:
        """Return the percentiles of a histogram."""
        ordered = sorted(counts.items())
        total = sum(counts.values())

        def at(share: float) -> int:
            seen = 0
            for value, count in ordered:
                seen += count
                if seen >= share * total:
                    return value
            return 0

        return cls(at(0.5), at(0.99), at(0.999))


@dataclass
class Sample:
    """Figures of one measurement."""

    target: str
    messages_per_s: float
    messages_per_cpu_s: float
    latency: Latency
    lanes: dict[str, Latency]
    server_busy: float  # CPU seconds per second
    redis_busy: float
    generator_busy: float  # of the busiest load generator; near 1 means that it was the limit
    worker_rss_mib: float
    account: dict[str, int]
    disturbed: float = 0.0  # cores used by other programs, and by other virtual machines
    disk_waits: int = 0  # see `disk_waits`
    notices: dict[str, int] = field(default_factory=dict)
    closes: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the sample as plain values."""
        return asdict(self)

    @property
    def faults(self) -> int:
        """Number of messages lost, doubled or out of order, and of unexpected errors and closes."""
        wrong = sum(self.account[name] for name in FAULTS)
        return wrong + sum(self.notices.values()) + sum(self.closes.values())


def connect(
    target: Target, generators: Generators, load: Load, seconds: float
) -> list[list[tuple[int, int]]]:
    """Sign in the twins of a load and prepare its flows; return the pairs of each generator."""
    shares = generators.share(load.pairs)
    for url, there in target.homes(load.twins).items():
        generators.each(
            "connect",
            [
                {
                    "url": url,
                    "twins": sorted({t for p in share for t in p} & there),
                    "protocol": target.protocol,
                }
                for share in shares
            ],
        )
    generators.each(
        "flows",
        [
            {
                "pairs": share,
                "payload_size_bytes": load.payload_size_bytes,
                "protocol": target.protocol,
                "signed": bool(load.signed_per_s),
                "signed_ahead": int(load.signed_per_s * (WARM_UP_S + seconds) / len(load.pairs)),
            }
            for share in shares
        ],
    )
    return shares


def leave(generators: Generators, shares: list[list[tuple[int, int]]]) -> None:
    """Sign out the twins that `connect` signed in."""
    generators.each("leave", [{"twins": sorted({t for p in s for t in p})} for s in shares])


def window_of(target: Target, generators: Generators, seconds: float, load: Load) -> Sample:
    """Measure prepared flows: start, warm up, measure, stop, account."""
    generators.all("start", window=load.window)
    time.sleep(WARM_UP_S)
    before, cpu_before = generators.all("mark"), cpu_of(target)
    busy_before, waits_before = layout.busy_s(), disk_waits(target)
    time.sleep(seconds)
    after, cpu_after = generators.all("mark"), cpu_of(target)
    used = {name: cpu_after[name] - cpu_before[name] for name in cpu_after}
    busy_s = layout.busy_s() - busy_before
    waits = disk_waits(target) - waits_before
    rss = max(layout.resident_bytes(pid) for pid in target.worker_pids)
    accounts = generators.all("stop", timeout_s=SETTLE_TIMEOUT_S)
    sample = _sample(target, before, after, used, rss, accounts)
    own_s = sum(used.values()) + sum(
        last["cpu_s"] - first["cpu_s"] for first, last in zip(before, after, strict=True)
    )
    return replace(sample, disturbed=max(0.0, busy_s - own_s) / seconds, disk_waits=waits)


def cpu_of(target: Target) -> dict[str, float]:
    """Return the CPU seconds used so far by each of the target's process trees."""
    return {name: layout.cpu_s(pid) for name, pid in target.roots.items()}


def disk_waits(target: Target) -> int:
    """Return how often Redis has been delayed by a slow disk."""
    if target.redis is None:
        return 0
    with target.redis.client() as client:
        return int(client.info("persistence").get("aof_delayed_fsync", 0))


def throughput(target: Target, generators: Generators, load: Load, seconds: float) -> Sample:
    """Measure a load once, on new connections."""
    shares = connect(target, generators, load, seconds)
    try:
        return window_of(target, generators, seconds, load)
    finally:
        leave(generators, shares)


def _sample(
    target: Target,
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
    cpu_s: dict[str, float],
    rss: int,
    accounts: list[dict[str, Any]],
) -> Sample:
    rate = busy = 0.0
    lanes: dict[str, Counter[int]] = {}
    longest_s = 0.0
    for first, last in zip(before, after, strict=True):
        wall_s = (last["at_ns"] - first["at_ns"]) / 1e9
        longest_s = max(longest_s, wall_s)
        rate += last["messages"] / wall_s
        busy = max(busy, (last["cpu_s"] - first["cpu_s"]) / wall_s)
        for name, pairs in last["lanes"].items():
            lanes.setdefault(name, Counter()).update(dict(pairs))
    total: Counter[int] = Counter()
    for counts in lanes.values():
        total.update(counts)
    return Sample(
        target=target.name,
        messages_per_s=rate,
        messages_per_cpu_s=rate * longest_s / sum(cpu_s.values()),
        latency=Latency.of(total),
        lanes={name: Latency.of(counts) for name, counts in lanes.items()},
        server_busy=cpu_s["server"] / longest_s,
        redis_busy=cpu_s.get("redis", 0.0) / longest_s,
        generator_busy=busy,
        worker_rss_mib=rss / 2**20,
        account=_added([account["account"] for account in accounts]),
        notices=_added([account["notices"] for account in accounts]),
        closes=_added([account["closes"] for account in accounts]),
    )


def _added(parts: list[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def side_by_side(
    targets: Sequence[Measured],
    runs: int,
    once: Callable[[Measured], Sample],
    most_rounds: int = MOST_ROUNDS,
) -> list[list[Sample]]:
    """Measure the targets (or whatever `once` takes) alternately; return `runs` samples each.

    Every other round goes through the targets in reverse order, so that a machine that slows down
    or speeds up during the bench favours none of them. Rounds in which others used the cores are
    repeated, until `most_rounds` times as many rounds are made; the calmest ones are kept. They are
    chosen by the CPU time of others alone, never by a result.
    """
    rounds: list[dict[int, Sample]] = []
    while len(rounds) < most_rounds * runs:
        order = list(enumerate(targets))
        if len(rounds) % 2:
            order.reverse()
        rounds.append({index: once(target) for index, target in order})
        if sum(_disturbed(one) <= DISTURBED_LIMIT for one in rounds) == runs:
            break
    calmest = sorted(range(len(rounds)), key=lambda number: _disturbed(rounds[number]))[:runs]
    return [[rounds[number][index] for number in sorted(calmest)] for index in range(len(targets))]


def _disturbed(one: dict[int, Sample]) -> float:
    """Return the worst disturbance of a round."""
    return max(sample.disturbed for sample in one.values())


def median_ratio(
    ours: Sequence[Sample], base: Sequence[Sample], value: Callable[[Sample], float]
) -> float:
    """Return the median of ours / base over the runs; each pair is measured in succession."""
    return statistics.median(
        value(mine) / (value(theirs) or 1) for mine, theirs in zip(ours, base, strict=True)
    )


def median(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    """Return the median of one figure over the runs."""
    return statistics.median(value(sample) for sample in samples)
