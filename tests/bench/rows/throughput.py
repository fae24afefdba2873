"""Rows of messages between connected twins: the relay and B, alternately, in one run."""

from __future__ import annotations

from dataclasses import replace

from hotpath import compiled as compiled_form
from tests.bench.bench import (
    Bench,
    as_json,
    described,
    faults,
    rate_ratio,
    remarks,
)
from tests.bench.figures import Figure, Row
from tests.bench.measure import Load, Sample, median, median_ratio, pair_load
from tests.bench.targets import TargetError
from tests.bench.twins import FIRST_TWIN

FIRST_ROW = pair_load(50, window=8)
LARGE_PAYLOAD_BYTES = 16 * 1024
LOADS = {
    "pairs": FIRST_ROW,
    "many-pairs": pair_load(200, window=4),
    "large": pair_load(50, 8, LARGE_PAYLOAD_BYTES),
    "fan-in": Load(tuple((FIRST_TWIN + 1 + n, FIRST_TWIN) for n in range(50)), window=4),
    "single": pair_load(1, window=1),
}


def p99(sample: Sample) -> float:
    return sample.latency.p99_us


def _beside_b(
    bench: Bench, load: Load, generators: int = 2
) -> tuple[list[Sample], list[Sample], Figure]:
    with (
        bench.yardstick() as base,
        bench.relay(load.twins) as ours,
        bench.generators(generators) as load_generators,
    ):
        mine, theirs = bench.compare(ours, base, load_generators, load)
    return mine, theirs, faults([*mine, *theirs])


def _row(
    name: str, title: str, targets: list[Figure], mine: list[Sample], theirs: list[Sample]
) -> Row:
    return Row(
        name,
        title,
        [*targets, *described("ours", mine), *described("B", theirs), faults(mine)],
        as_json(ours=mine, B=theirs),
        remarks(mine, theirs),
    )


def pairs(bench: Bench) -> Row:
    """Measure the first row: 50 pairs with small messages."""
    mine, theirs, _ = _beside_b(bench, FIRST_ROW)
    targets = [
        Figure("rate", rate_ratio(mine, theirs), "B", must=2.1, goal=3.0),
        Figure("p99", median_ratio(mine, theirs, p99), "B", must=1.0, lower_is_better=True),
    ]
    title = "50 pairs, window 8, 256 B, one worker, journaled, limits and metrics on"
    return _row("pairs", title, targets, mine, theirs)


def many_pairs(bench: Bench) -> Row:
    """Measure more sessions with fewer messages each: smaller reads, the same batches."""
    mine, theirs, _ = _beside_b(bench, LOADS["many-pairs"])
    targets = [Figure("rate", rate_ratio(mine, theirs), "B", must=2.0, goal=2.5)]
    return _row("many-pairs", "200 pairs, window 4, 256 B", targets, mine, theirs)


def large(bench: Bench) -> Row:
    """Measure large messages, whose bytes are moved, unmasked and journaled."""
    mine, theirs, _ = _beside_b(bench, LOADS["large"])
    targets = [Figure("rate", rate_ratio(mine, theirs), "B", must=1.0, goal=1.5)]
    return _row("large", "50 pairs, window 8, 16 KiB", targets, mine, theirs)


def fan_in(bench: Bench) -> Row:
    """Measure one busy receiver, with one generator: the credits go back to all senders."""
    mine, theirs, _ = _beside_b(bench, LOADS["fan-in"], generators=1)
    targets = [
        Figure("rate", rate_ratio(mine, theirs), "B", must=1.1),
        Figure(
            "p99.9",
            median(mine, lambda sample: sample.latency.p999_us) / 1000,
            "ms",
            must=100,
            lower_is_better=True,
        ),
    ]
    return _row("fan-in", "50 senders to one receiver, window 4", targets, mine, theirs)


def single(bench: Bench) -> Row:
    """Measure the latency of one message through an idle relay: that of B plus one commit."""
    mine, theirs, _ = _beside_b(bench, LOADS["single"], generators=1)
    targets = [
        Figure(
            "p50",
            median_ratio(mine, theirs, lambda sample: sample.latency.p50_us),
            "B",
            must=1.9,
            goal=1.5,
            lower_is_better=True,
        ),
        Figure(
            "p99", median_ratio(mine, theirs, p99), "B", must=1.8, goal=1.3, lower_is_better=True
        ),
    ]
    return _row("single", "one pair, window 1", targets, mine, theirs)


def compiled(bench: Bench) -> Row:
    """Compare the first row with the compiled form of the hot path and with the pure one."""
    return beside_pure(bench, "compiled", "the first row", "rmb", {}, must=1.3)


def beside_pure(
    bench: Bench, name: str, title: str, protocol: str, settings: dict[str, str], must: float
) -> Row:
    """Compare the first row's load in the compiled form with the same in pure Python."""
    require_build()
    twins = FIRST_ROW.twins if protocol == "rmb" else []
    with (
        bench.relay(twins, settings) as fast,
        bench.relay(twins, {**settings, compiled_form.SWITCH: "0"}) as pure,
        bench.generators(2) as generators,
    ):
        targets = (replace(each, protocol=protocol) for each in (fast, pure))
        mine, theirs = bench.compare(*targets, generators, FIRST_ROW)
    figures = [
        Figure("rate", rate_ratio(mine, theirs), "of pure Python", must=must, goal=1.8),
        Figure(
            "messages per core of the server",
            median_ratio(mine, theirs, lambda each: each.messages_per_s / each.server_busy),
            "of pure Python",
        ),
        *described("compiled", mine),
        *described("pure", theirs),
        faults([*mine, *theirs]),
    ]
    samples = as_json(compiled=mine, pure=theirs)
    return Row(name, f"{title}, compiled beside pure", figures, samples, remarks(mine, theirs))


def require_build() -> None:
    """Check that the compiled form, which is to be measured, is in use.

    Raises:
        TargetError: It is not.
    """
    if not compiled_form.in_use():
        raise TargetError(f"there is nothing to compare with: {compiled_form.state()}")


def append_only(bench: Bench) -> Row:
    """Measure the first row with the other settings of Redis' append-only file; no target."""
    figures: list[Figure] = []
    samples: dict[str, list[dict[str, object]]] = {}
    notes: list[str] = []
    for setting in ("always", "no"):
        changed = replace(bench, options=replace(bench.options, append_only=setting))
        mine, theirs, wrong = _beside_b(changed, FIRST_ROW)
        figures.append(Figure(f"rate, append-only {setting}", rate_ratio(mine, theirs), "B"))
        figures += described(f"ours, {setting}", mine)
        figures.append(replace(wrong, name=f"{wrong.name}, {setting}"))
        samples |= as_json(**{f"ours_{setting}": mine, f"B_{setting}": theirs})
        notes += remarks(mine, theirs)
    return Row("append-only", "the first row, append-only always and off", figures, samples, notes)
