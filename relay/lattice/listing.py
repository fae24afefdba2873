"""Rows of lists, from the reports of the lattice's processes in Redis (see `lattice.report`).

All functions raise `relay.access.errors.Away` while Redis does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from redis.exceptions import RedisError

from proto.lattice import state
from proto.lattice.state import ActorRow, FindingRow, HostRow, ProviderRow, Row, Seen
from relay.access.errors import Away
from relay.lattice import figures
from relay.ops.redis_client import client, text

MINUTES: Final = 60
RATE_MINUTES: Final = 5
OK: Final = "ok"


class CallKey(NamedTuple):
    """Key under which calls are counted."""

    direction: str
    entity: str
    contract: str
    operation: str


@dataclass(slots=True)
class Calls:
    """Counts of calls in the last hour with the same key.

    Attributes:
        key: key under which they are counted.
        calls: number of all calls.
        errors: number of calls that failed or were refused.
        outcomes: number of calls by outcome.
        recent: number of calls in the last `RATE_MINUTES` whole minutes.
        total_ms: sum of their latencies.
        classes: number of calls by the upper bound of their latency class in milliseconds, which is
            infinite for the last class.
    """

    key: CallKey
    calls: int = 0
    errors: int = 0
    recent: int = 0
    total_ms: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    classes: dict[float, int] = field(default_factory=dict)

    @property
    def per_s(self) -> float:
        """Calls per second over the last `RATE_MINUTES` whole minutes."""
        return self.recent / (60 * RATE_MINUTES)

    @property
    def mean_ms(self) -> float | None:
        """Mean latency; None without calls."""
        return self.total_ms / self.calls if self.calls else None

    def quantile_ms(self, share: float) -> float | None:
        """Return the upper bound of the latency class in which a quantile lies."""
        below = 0
        for bound, count in sorted(self.classes.items()):
            below += count
            if below >= share * self.calls:
                return bound
        return None


@contextmanager
def _redis_answers() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error


@_redis_answers()
def processes() -> list[figures.Process]:
    """Return the live processes, in the order of their ids."""
    return figures.processes(client())


@_redis_answers()
def seen(what: Seen, kind: type[Row]) -> list[Row]:
    """Return the rows of one kind of lattice contents, such as hosts."""
    found: Any = client().hgetall(what)
    return [state.decode(kind, row) for row in found.values()]


def names() -> dict[str, str]:
    """Return the names of all hosts, actors and providers, by their public keys."""
    return {
        **{row.id: row.name for row in seen(Seen.HOSTS, HostRow)},
        **{row.id: row.name for row in seen(Seen.ACTORS, ActorRow)},
        **{row.id: row.name for row in seen(Seen.PROVIDERS, ProviderRow)},
    }


@_redis_answers()
def calls(now: float | None = None) -> list[Calls]:
    """Return the calls of the last hour."""
    minute = int((time.time() if now is None else now) // 60)
    minutes = range(minute, minute - MINUTES, -1)
    with client().pipeline(transaction=False) as pipe:
        for each in minutes:
            pipe.hgetall(state.calls_key(each))
        found = pipe.execute()
    rows: dict[CallKey, Calls] = {}
    for each, fields in zip(minutes, found, strict=True):
        is_recent = minute - RATE_MINUTES <= each < minute
        _add(rows, ((text(name), float(count)) for name, count in fields.items()), is_recent)
    return list(rows.values())


@_redis_answers()
def findings(newest: int = state.MAX_FINDINGS) -> list[tuple[str, FindingRow]]:
    """Return the newest findings of the monitor with their ids, the newest first."""
    return figures.findings(client(), newest)


def _add(rows: dict[CallKey, Calls], fields: Iterable[tuple[str, float]], is_recent: bool) -> None:
    for name, count in fields:
        *parts, what = state.decode_call_field(name)
        key = CallKey(*parts)
        row = rows.get(key) or rows.setdefault(key, Calls(key))
        if what == "ms":
            row.total_ms += count
        elif what.startswith("<"):
            bound = float(what[1:])
            row.classes[bound] = row.classes.get(bound, 0) + int(count)
        else:
            row.calls += int(count)
            row.errors += int(count) if what != OK else 0
            row.recent += int(count) if is_recent else 0
            row.outcomes[what] = row.outcomes.get(what, 0) + int(count)
