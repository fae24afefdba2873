"""What passed the bridge and what did not: counts for Redis, and events for the lake."""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from lattice.bridge.refusals import FailedError
from lattice.recording import Events
from proto.lattice import recording
from proto.lattice.policy import Direction, Refusal
from proto.lattice.recording import EventKind, Shape

OK: Final = "ok"
CRASHED: Final = "crashed"
BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Upper ends of the classes of latencies; the last class has none."""
MAX_KEYS: Final = 10_000
"""Rows between two reports; calls beyond are counted under `OTHERS`."""
OTHERS: Final = "(others)"
"""In place of names: of calls that are refused, and of those beyond the bound."""
REFUSED: Final = frozenset({*Refusal, "malformed", "not_found"})
_KINDS: Final = {Direction.TO_LATTICE: EventKind.OUT, Direction.TO_TWIN: EventKind.IN}


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


@dataclass(slots=True)
class Passing:
    """A call that passes; whoever passes it on fills in what turns out meanwhile.

    Attributes:
        direction: who calls whom.
        operation: of the lattice.
        contract: of the provider; empty for calls of actors.
        origin, target: public keys.
        link: name of the link.
        twin: that calls or is called.
        size: of the payload, in bytes.
        answer: size of the result; None: the call has no result.
        id: of the invocation.
        host_id: that the invocation names.
    """

    direction: Direction
    operation: str
    contract: str = ""
    origin: str = ""
    target: str = ""
    link: str = ""
    twin: int = 0
    size: int = 0
    answer: int | None = None
    id: str = ""
    host_id: str = ""

    @property
    def key(self) -> Key:
        """What the call is counted by."""
        entity = self.target if self.direction is Direction.TO_LATTICE else self.origin
        return Key(self.direction, entity, self.contract, self.operation)

    def shape(self, reason: str) -> Shape:
        """Return what its event has in common with others."""
        return Shape(
            _KINDS[self.direction],
            self.origin,
            self.target,
            self.link,
            self.contract,
            self.operation,
            self.host_id,
            reason,
        )


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
    """Counts since the last report.

    Args:
        events: get each call; None: calls are not recorded.
    """

    def __init__(self, events: Events | None = None) -> None:
        self._events = events
        self._rows: dict[Key, Row] = {}
        self.running = 0

    @contextmanager
    def counting(self, passing: Passing) -> Iterator[None]:
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
            took_s = time.perf_counter() - began_s
            key = passing.key
            if outcome in REFUSED:  # names that anybody may invent
                key = Key(key.direction, OTHERS, "", OTHERS)
            self._row(key).add(outcome, took_s * 1000)
            if self._events is not None:
                self._events.add(
                    passing.shape(recording.OK if outcome == OK else outcome),
                    time.time(),
                    passing.id,
                    passing.size,
                    passing.answer,
                    int(took_s * 1e6),
                    passing.twin,
                )

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
