"""Reports of the lattice's processes in Redis, and the metrics that are derived from them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from proto.lattice import state
from proto.lattice.errors import FormatError
from proto.lattice.state import FindingRow, ProcessKind, Total
from relay.ops.metric_names import series
from relay.ops.redis_client import number, text

MAX_PROCESSES: Final = 1_000
CONNECTED: Final = "connected"
_KINDS: Final = (ProcessKind.BRIDGE, ProcessKind.MONITOR)
_METRICS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    Total.CALLS: ("lattice_calls_total", ("direction", "outcome")),
    Total.REFUSED: ("lattice_refused_total", ("direction", "reason")),
    Total.JUDGED: ("lattice_judged_total", ()),
    Total.UNJUDGED: ("lattice_unjudged_total", ()),
    Total.FOUND: ("lattice_findings_total", ("reason",)),
    Total.UNRECORDED: ("lattice_unrecorded_total", ()),
}


class Process(NamedTuple):
    """A bridge or a monitor that is alive.

    Attributes:
        id: id of the process.
        values: its report: kind, pid, started, and further values that depend on the kind.
    """

    id: str
    values: dict[str, Any]

    @property
    def kind(self) -> str:
        """Kind of the process, a `ProcessKind`."""
        return str(self.values.get("kind", ""))

    @property
    def connected(self) -> bool:
        """Whether it is connected to NATS."""
        return bool(self.values.get("nats") == CONNECTED)


class Totals:
    """Counts of all processes together, since the first one."""

    def __init__(self, fields: Mapping[Any, Any]) -> None:
        self.counts: dict[tuple[str, ...], float] = {
            tuple(text(name).split(" ")): number(count) for name, count in fields.items()
        }

    def by_label(self, total: Total) -> dict[str, float]:
        """Return the counts of a total by its label; the total has one label, or none."""
        return {
            "".join(labels): count
            for (name, *labels), count in self.counts.items()
            if name == total and len(labels) < 2
        }


def processes(redis: Redis) -> list[Process]:
    """Return the live processes, in the order of their ids.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    ids = _ids(redis.zrevrange(state.PROCESSES, 0, MAX_PROCESSES - 1))
    with redis.pipeline(transaction=False) as pipe:
        for each in ids:
            pipe.hgetall(state.process_key(each))
        return _alive(ids, pipe.execute())


def totals(redis: Redis) -> Totals:
    """Return the totals of all processes.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    fields: Any = redis.hgetall(state.TOTALS)
    return Totals(fields)


def findings(redis: Redis, newest: int) -> list[tuple[str, FindingRow]]:
    """Return the newest findings of monitors with their ids, the newest first.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    rows: Any = redis.xrevrange(state.FINDINGS, count=newest)
    return decode_findings(rows)


def decode_findings(entries: Iterable[Any]) -> list[tuple[str, FindingRow]]:
    """Return ids and rows of stream entries; entries that cannot be decoded are skipped."""
    name, found = state.FINDING_FIELD.encode(), []
    for each, row in entries:
        with contextlib.suppress(FormatError, KeyError):
            found.append((text(each), state.decode(FindingRow, row[name])))
    return found


def read(redis: Redis) -> dict[str, float]:
    """Return the metrics of the lattice: values by series.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return _figures(totals(redis), processes(redis))


async def read_async(redis: AsyncRedis) -> dict[str, float]:
    """Return the same as `read`, from an event loop."""
    ids = _ids(await redis.zrevrange(state.PROCESSES, 0, MAX_PROCESSES - 1))
    async with redis.pipeline(transaction=False) as pipe:
        pipe.hgetall(state.TOTALS)
        for each in ids:
            pipe.hgetall(state.process_key(each))
        fields, *rows = await pipe.execute()
    return _figures(Totals(fields), _alive(ids, rows))


def _ids(found: Any) -> list[str]:
    return sorted(text(each) for each in found)


def _alive(ids: Iterable[str], rows: Iterable[Any]) -> list[Process]:
    return [
        Process(each, {text(name): json.loads(raw) for name, raw in row.items()})
        for each, row in zip(ids, rows, strict=True)
        if row
    ]


def _figures(counted: Totals, alive: list[Process]) -> dict[str, float]:
    found = {"lattice_judged_total": 0.0, "lattice_unjudged_total": 0.0}
    for (name, *labels), count in counted.counts.items():
        metric, names = _METRICS.get(name, ("", ()))
        if metric and len(names) == len(labels):
            found[series(metric, **dict(zip(names, labels, strict=True)))] = count
    for kind in _KINDS:
        own = [each for each in alive if each.kind == kind]
        found[series("lattice_processes", kind=kind)] = float(len(own))
        connected = sum(each.connected for each in own)
        found[series("lattice_connected", kind=kind)] = float(connected)
    return found
