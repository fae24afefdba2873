"""Row about good and bad traffic for an hour: the memory of every process meanwhile."""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from contextlib import ExitStack, suppress
from dataclasses import replace

import psutil

from tests.bench import layout
from tests.bench.bench import Bench
from tests.bench.figures import Figure, Row
from tests.bench.generators import Generators
from tests.bench.measure import Load, connect, leave, pair_load
from tests.bench.rows.floods import (
    ACCOUNT,
    ELSEWHERE_TWIN,
    FLOODERS,
    HOMES,
    NOWHERE,
    Attack,
    flooded,
)
from tests.bench.targets import Target

PAIRS = pair_load(10, window=1)
KINDS = ("new_sids", "unknown_twin", "source_share", "outbox_full", "ping", "unparsable", "churn")
"""Kinds of floods that run beside the pairs, each from a twin of its own."""
SAMPLES = 80
GROWTH_MIB = 4.0
"""Allowed growth from the second quarter to the last one: memory varies that much by itself."""


def soak(bench: Bench) -> Row:
    """Run pairs, floods and sign-ins with new session ids; sample the memory of each process."""
    environment = {"RMB_FEDERATION__MAX_MESSAGES": "1000", "RMB_CELERY__EMBEDDED": "1"}
    prepare = (("rmb_twin", "add", str(ELSEWHERE_TWIN), ACCOUNT, "--relays", NOWHERE),)
    options = replace(bench.options, prepare=prepare)
    samples: dict[str, list[float]] = defaultdict(list)
    duration_s = bench.minutes * 60
    with (
        replace(bench, options=options).relay(HOMES, environment, processes=2) as relay,
        bench.generators(1) as generators,
        ExitStack() as floods,
    ):
        for twin, kind in zip(FLOODERS, KINDS, strict=False):
            floods.enter_context(flooded(relay, Attack(kind, kind, [(twin, None)]), []))
        received = _watch(relay, generators, PAIRS, duration_s, samples)
    figures = [Figure("messages of the pairs per second", received / duration_s)]
    for name, values in sorted(samples.items()):
        if len(values) < SAMPLES:
            continue  # did not run all the time
        quarter = len(values) // 4
        before = statistics.median(values[quarter : 2 * quarter])
        growth = statistics.median(values[3 * quarter :]) - before
        figures.append(Figure(f"{name}: in the second quarter", before, "MiB"))
        figures.append(
            Figure(f"{name}: growth", growth, "MiB", must=GROWTH_MIB, lower_is_better=True)
        )
    title = f"{bench.minutes:g} minutes of good and bad traffic, two workers"
    return Row("soak", title, figures, {"memory": [dict(samples)]})


def _watch(
    relay: Target,
    generators: Generators,
    load: Load,
    duration_s: float,
    samples: dict[str, list[float]],
) -> int:
    """Keep the pairs busy, and record the memory of each process; return the messages received."""
    shares = connect(relay, generators, load, duration_s)
    generators.all("start", window=load.window)
    received = 0
    began = time.monotonic()
    for number in range(SAMPLES):
        time.sleep(max(0.0, began + (number + 1) * duration_s / SAMPLES - time.monotonic()))
        received += sum(part["messages"] for part in generators.all("mark"))
        for name, mib in _memory(relay).items():
            samples[name].append(mib)
        print(f"soak: {number + 1} of {SAMPLES}", file=sys.stderr, flush=True)
    generators.all("stop", timeout_s=10.0)
    leave(generators, shares)
    return received


def _memory(relay: Target) -> dict[str, float]:
    """Return the memory that each process of the relay does not share (USS), in MiB."""
    found: dict[str, float] = {}
    for root in relay.roots.values():
        for process in layout.family(root):
            with suppress(psutil.NoSuchProcess):
                command = " ".join(process.cmdline())
                found[f"{_role(command)} {process.pid}"] = process.memory_full_info().uss / 2**20
    return found


def _role(command: str) -> str:
    for part, role in (
        ("--role worker", "worker"),
        ("--role admin", "site"),
        ("celery", "celery"),
        ("valkey", "redis"),
        ("runrelay", "supervisor"),
    ):
        if part in command:
            return role
    return "other"
