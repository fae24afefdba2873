"""Rows of lists, from what the processes of the lattice tell in Redis (see `lattice.report`).

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
    """What calls are counted by."""

    direction: str
    entity: str
    contract: str
    operation: str


@dataclass(slots=True)
class Calls:
    """Calls of the last hour that are counted together.

    Attributes:
        key: by which they are.
        calls: all of them.
        errors: those that failed, or were refused.
        outcomes: calls by outcome.
        recent: calls of the last `RATE_MINUTES` whole minutes.
        total_ms: of their latencies.
        classes: calls by the upper end of their latency in milliseconds; infinite for the last.
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
        """Calls a second, over the last `RATE_MINUTES` whole minutes."""
        return self.recent / (60 * RATE_MINUTES)

    @property
    def mean_ms(self) -> float | None:
        """Mean latency."""
        return self.total_ms / self.calls if self.calls else None

    def quantile_ms(self, share: float) -> float | None:
        """Return the upper end of the class in which a share of all latencies ends."""
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
    """Return the processes that are alive, by their ids."""
    return figures.processes(client())


@_redis_answers()
def seen(what: Seen, kind: type[Row]) -> list[Row]:
    """Return what the lattice runs, as the processes saw it."""
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
    """Return what the monitor found and the id of each, the newest first."""
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
