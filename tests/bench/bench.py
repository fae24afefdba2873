"""What every row gets: length and number of measurements, cores, relays and load generators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.bench import targets
from tests.bench.figures import Figure
from tests.bench.generators import Generators
from tests.bench.layout import layout
from tests.bench.measure import (
    DISTURBED_LIMIT,
    MOST_ROUNDS,
    Load,
    Sample,
    median,
    median_ratio,
    side_by_side,
    throughput,
)
from tests.bench.targets import RelayOptions, Target

GENERATOR_LIMIT = 0.93
"""Share of a core above which a load generator was the limit; the row then says so."""
QUICK_DIVISOR = 10


@dataclass(frozen=True)
class Bench:
    """The options of a run.

    Attributes:
        runs: number of measurements of each target; figures are medians.
        seconds: length of one measurement, in seconds.
        quick: whether the run is short, with fewer sessions; not comparable with a full run.
        options: how the relay is started.
        events: number of events in the rows about analytics.
        events_given: whether `--events` chose that number.
        events_in: folder that keeps these events for the next run.
        minutes: length of the soak, in minutes.
    """

    runs: int = 5
    seconds: float = 6.0
    quick: bool = False
    options: RelayOptions = field(default_factory=RelayOptions)
    events: int = 5_000_000
    events_given: bool = False
    events_in: Path | None = None
    minutes: float = 60.0

    @property
    def most_rounds(self) -> int:
        """Maximum number of rounds in search of calm ones, in units of `runs`; 1 in a quick run."""
        return 1 if self.quick else MOST_ROUNDS

    def many(self, count: int) -> int:
        """Return this number of sessions or repetitions, or a tenth of it in a quick run."""
        return max(count // QUICK_DIVISOR, 1) if self.quick else count

    def events_at_most(self, bound: int) -> int:
        """Return the number of events, limited to this bound unless `--events` chose it."""
        return self.events if self.events_given else min(self.events, bound)

    @contextmanager
    def yardstick(self) -> Iterator[Target]:
        """Run B on the server cores."""
        with targets.yardstick(layout().server) as target:
            yield target

    @contextmanager
    def relay(
        self,
        twins: Sequence[int],
        environment: Mapping[str, str] | None = None,
        cores: frozenset[int] | None = None,
        processes: int = 1,
    ) -> Iterator[Target]:
        """Run the relay, on the server cores by default."""
        options = replace(
            self.options,
            processes=processes,
            environment={**self.options.environment, **(environment or {})},
        )
        with targets.relay(cores or layout().server, options, twins) as target:
            yield target

    def generators(self, count: int = 2) -> Generators:
        """Return load generators on the cores that the servers do not use."""
        return Generators(layout().load[:count])

    def compare(
        self, ours: Target, base: Target, generators: Generators, load: Load
    ) -> tuple[list[Sample], list[Sample]]:
        """Measure the relay and B alternately under the same load."""
        mine, theirs = side_by_side(
            [ours, base],
            self.runs,
            lambda target: throughput(target, generators, load, self.seconds),
            self.most_rounds,
        )
        return mine, theirs


def rate(sample: Sample) -> float:
    """Return the messages per wall second."""
    return sample.messages_per_s


def rate_ratio(ours: Sequence[Sample], base: Sequence[Sample]) -> float:
    """Return the rate of the relay as a multiple of that of B."""
    return median_ratio(ours, base, rate)


def described(name: str, samples: Sequence[Sample]) -> list[Figure]:
    """Return the figures that every throughput row shows for one target."""
    return [
        Figure(f"{name}: messages per wall second", median(samples, rate)),
        Figure(
            f"{name}: messages per CPU second",
            median(samples, lambda sample: sample.messages_per_cpu_s),
        ),
        Figure(f"{name}: p50", median(samples, lambda sample: sample.latency.p50_us) / 1000, "ms"),
        Figure(f"{name}: p99", median(samples, lambda sample: sample.latency.p99_us) / 1000, "ms"),
        Figure(
            f"{name}: p99.9", median(samples, lambda sample: sample.latency.p999_us) / 1000, "ms"
        ),
        Figure(
            f"{name}: cores used by the server", median(samples, lambda sample: sample.server_busy)
        ),
        Figure(f"{name}: cores used by Redis", median(samples, lambda sample: sample.redis_busy)),
        Figure(
            f"{name}: worker memory", median(samples, lambda sample: sample.worker_rss_mib), "MiB"
        ),
    ]


def faults(samples: Sequence[Sample]) -> Figure:
    """Return the number of lost, doubled and unordered messages and of errors; must be 0."""
    count = sum(sample.faults for sample in samples)
    return Figure("lost, doubled, out of order, errors", count, must=0, lower_is_better=True)


def remarks(*samples: Sequence[Sample]) -> list[str]:
    """Return what a reader must know about these measurements."""
    found = []
    for group in samples:
        busiest = max(sample.generator_busy for sample in group)
        if busiest > GENERATOR_LIMIT:
            found.append(f"{group[0].target}: a load generator was the limit ({busiest:.0%} busy)")
        disturbed = max(sample.disturbed for sample in group)
        if disturbed > DISTURBED_LIMIT:
            found.append(f"{group[0].target}: others used up to {disturbed:.2f} cores meanwhile")
        waits = sum(sample.disk_waits for sample in group)
        if waits:
            found.append(f"{group[0].target}: Redis waited for the disk {waits} times")
        for sample in group:
            if sample.faults:
                found.append(
                    f"{sample.target}: {sample.account} {sample.notices or ''} "
                    f"{sample.closes or ''}".rstrip()
                )
    return found


def as_json(**samples: Sequence[Sample]) -> dict[str, list[dict[str, object]]]:
    """Return samples by name as plain values."""
    return {name: [sample.as_json() for sample in group] for name, group in samples.items()}
