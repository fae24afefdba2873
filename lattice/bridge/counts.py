"""Counts of the calls over the bridge by outcome, for Redis, and an event of each for the lake."""

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
"""Upper bounds of the latency classes, in milliseconds; the last class has no upper bound."""
MAX_KEYS: Final = 10_000
"""Maximum number of rows between two reports; further calls are counted under `OTHERS`."""
OTHERS: Final = "(others)"
"""Name under which refused calls, and calls beyond `MAX_KEYS`, are counted."""
REFUSED: Final = frozenset({*Refusal, "malformed", "not_found"})
_KINDS: Final = {Direction.TO_LATTICE: EventKind.OUT, Direction.TO_TWIN: EventKind.IN}


class Key(NamedTuple):
    """Key under which calls are counted.

    Attributes:
        direction: direction of the call: to the lattice, or to a twin.
        entity: public key of the actor or provider.
        contract: contract of the provider; empty for calls of actors.
        operation: operation of the lattice.
    """

    direction: str
    entity: str
    contract: str
    operation: str


@dataclass(slots=True)
class Passing:
    """A call over the bridge. The code that handles it fills in what becomes known meanwhile.

    Attributes:
        direction: direction of the call: to the lattice, or to a twin.
        operation: operation of the lattice.
        contract: contract of the provider; empty for calls of actors.
        origin, target: public keys.
        link: name of the link.
        twin: number of the twin that calls or is called.
        size: size of the payload, in bytes.
        answer: size of the result, in bytes; None: the call has no result.
        id: id of the invocation.
        host_id: host id that the invocation names.
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
        """Key under which the call is counted."""
        entity = self.target if self.direction is Direction.TO_LATTICE else self.origin
        return Key(self.direction, entity, self.contract, self.operation)

    def shape(self, reason: str) -> Shape:
        """Return the fields of the call's event that other events have in common with it."""
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
        outcomes: number of calls by outcome: `OK`, or why they failed.
        total_ms: sum of all latencies, in milliseconds.
        classes: number of calls by latency class, see `BOUNDS_MS`.
    """

    __slots__ = ("classes", "outcomes", "total_ms")

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}
        self.total_ms = 0.0
        self.classes = [0] * (len(BOUNDS_MS) + 1)

    def add(self, outcome: str, took_ms: float) -> None:
        """Count a call with its outcome and latency."""
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.total_ms += took_ms
        self.classes[bisect.bisect_left(BOUNDS_MS, took_ms)] += 1


class Counts:
    """Counts since the last report.

    Args:
        events: events to which each call is added; None: calls are not recorded.
    """

    def __init__(self, events: Events | None = None) -> None:
        self._events = events
        self._rows: dict[Key, Row] = {}
        self.running = 0

    @contextmanager
    def counting(self, passing: Passing) -> Iterator[None]:
        """Count the call that the block makes, by how the block ends."""
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
            if outcome in REFUSED:  # a caller may invent such names
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
        """Return the counts since the last call of this method, and begin new ones."""
        rows, self._rows = self._rows, {}
        return rows

    def _row(self, key: Key) -> Row:
        row = self._rows.get(key)
        if row is None:
            if len(self._rows) >= MAX_KEYS:
                key = Key(key.direction, OTHERS, "", OTHERS)
            row = self._rows.setdefault(key, Row())
        return row
