"""What passed the bridge and what did not, in counts that a process adds to Redis."""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from lattice.bridge.refusals import FailedError
from proto.lattice.policy import Direction, Refusal

OK: Final = "ok"
CRASHED: Final = "crashed"
BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Upper ends of the classes of latencies; the last class has none."""
MAX_KEYS: Final = 10_000
"""Rows between two reports; calls beyond are counted under `OTHERS`."""
OTHERS: Final = "(others)"
"""In place of names: of calls that are refused, and of those beyond the bound."""
REFUSED: Final = frozenset({*Refusal, "malformed", "not_found"})


class Key(NamedTuple):
    """What is counted together.

    Attributes:
        direction: who calls whom.
        entity: public key of the actor or provider.
        contract: of the provider; empty for calls of actors.
        operation: of the lattice.
    """

    direction: str
    entity: str
    contract: str
    operation: str


class Row:
    """Counts of one key.

    Attributes:
        outcomes: calls by outcome: `OK`, or why they failed.
        total_ms: of all latencies.
        classes: calls by latency, see `BOUNDS_MS`.
    """

    __slots__ = ("classes", "outcomes", "total_ms")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.total_ms = 0.0
        self.classes = [0] * (len(BOUNDS_MS) + 1)

    def add(self, outcome: str, took_ms: float) -> None:
        """Count a call."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.total_ms += took_ms
        self.classes[bisect.bisect_left(BOUNDS_MS, took_ms)] += 1


class Counts:
    """Counts since the last report."""

    def __init__(self) -> None:
        self._rows: dict[Key, Row] = {}
        self.running = 0

    @contextmanager
    def counting(
        self, direction: Direction, entity: str, contract: str, operation: str
    ) -> Iterator[None]:
        """Count the call that the block makes, by how it ends."""
        began_s, outcome = time.perf_counter(), CRASHED
        self.running += 1
        try:
            yield
            outcome = OK
        except FailedError as error:
            outcome = error.outcome
            raise
        finally:
            self.running -= 1
            took_ms = (time.perf_counter() - began_s) * 1000
            key = Key(direction, entity, contract, operation)
            if outcome in REFUSED:  # names that anybody may invent
                key = Key(direction, OTHERS, "", OTHERS)
            self._row(key).add(outcome, took_ms)

    def take(self) -> dict[Key, Row]:
        """Return what was counted since the last time."""
        rows, self._rows = self._rows, {}
        return rows

    def _row(self, key: Key) -> Row:
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MAX_KEYS:
                key = Key(key.direction, OTHERS, "", OTHERS)
            row = self._rows.setdefault(key, Row())
        return row
