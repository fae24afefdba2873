"""Invocations of a lattice with a bridge and a monitor; some are slow, fail or are forged."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
import pyarrow as pa

from proto.lattice.recording import NO_LATENCY, NO_SIZE, NO_TWIN, Batch, EventKind, Shape
from relay.analytics import lattice_intake
from relay.analytics.synthetic.incidents import HOUR_US
from relay.analytics.synthetic.rows import Column

ACTORS: Final = tuple(f"M{number:055}" for number in range(40))
PROVIDERS: Final = tuple(f"V{number:055}" for number in range(4))
HOSTS: Final = tuple(f"N{number:055}" for number in range(3))
CONTRACTS: Final = tuple(f"example:contract-{number}" for number in range(len(PROVIDERS)))
OPERATIONS: Final = ("Query", "Store", "Remove")

FAILING: Final = 0.02
FORGED: Final = 0.01
SLOW_TARGET: Final = 3
"""Index of the provider whose calls are slow."""

_REASONS: Final = ("none", "timed_out", "remote_error")
_FOUND: Final = ("none", "replay", "signature")


def _shapes() -> list[Shape]:
    """Return the shapes of all calls, with each result and each finding of the monitor."""
    made = []
    for number, (actor, target, name) in enumerate(
        itertools.product(ACTORS, range(len(PROVIDERS)), OPERATIONS)
    ):
        kind = EventKind.IN if target == 0 else EventKind.OUT
        shape = Shape(
            kind,
            actor,
            PROVIDERS[target],
            "default",
            CONTRACTS[target],
            f"Service.{name}",
            HOSTS[number % len(HOSTS)],
        )
        made += [shape._replace(reason=reason) for reason in _REASONS]
        made += [shape._replace(kind=EventKind.SEEN, reason=reason) for reason in _FOUND]
    return made


_SHAPES: Final = _shapes()
_EACH: Final = len(_REASONS) + len(_FOUND)


def invocations(
    rng: np.random.Generator, start_us: int, calls: int, twins: Column, relay: str
) -> pa.Table:
    """Return the rows of an hour: each call over the bridge, and what the monitor saw of it.

    Args:
        rng: random number generator.
        start_us: start of the hour.
        calls: number of calls.
        twins: twins that take part.
        relay: relay that records.
    """
    each = len(_SHAPES) // _EACH
    # Most calls are from the start of the list.
    call = (each * rng.random(calls) ** 3).astype(np.int64)
    ends = rng.random(calls)
    failed = (ends < FAILING).astype(np.int64) * (1 + (ends < FAILING / 4))
    forged = (ends > 1 - FORGED).astype(np.int64) * (1 + (ends > 1 - FORGED / 2))
    slow = call // len(OPERATIONS) % len(PROVIDERS) == SLOW_TARGET
    rows = np.zeros(2 * calls, lattice_intake.ROW)
    bridged, seen = rows[:calls], rows[calls:]
    times = start_us + np.sort(rng.integers(0, HOUR_US, calls))
    bridged["event_time"] = seen["event_time"] = times
    bridged["uid"] = seen["uid"] = rng.integers(-(1 << 63), (1 << 63) - 1, calls)
    latency = rng.lognormal(8, 1, calls) * np.where(slow, 200, 1)
    bridged["latency_us"], seen["latency_us"] = latency.astype(np.int64), NO_LATENCY
    size = rng.integers(16, 4_096, calls)
    bridged["size_bytes"], seen["size_bytes"] = size, size + 600
    bridged["answer_bytes"] = np.where(failed > 0, NO_SIZE, rng.integers(0, 1_024, calls))
    seen["answer_bytes"] = NO_SIZE
    bridged["twin"], seen["twin"] = twins[rng.integers(0, len(twins), calls)], NO_TWIN
    bridged["shape"] = call * _EACH + failed
    seen["shape"] = call * _EACH + len(_REASONS) + forged
    return lattice_intake.table(rows, Batch(_SHAPES, b""), relay)
