"""Rows of events as numeric columns, and as an Arrow table."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from relay.analytics import arrow_schema
from relay.analytics.spark import schema

Column = NDArray[Any]

NULL: Final = -1
"""Value for null in `latency_us` and `remote`."""

NO_REASON: Final = 0
REASONS: Final = (
    *(schema.NONE, "expired", "queue_expired", "offline_failfast", "storage_full", "purged"),
    *("remote_4xx", "remote_5xx", "remote_timeout", "unknown_twin", "limit_count", "unparsable"),
    *("client_close", "idle", "replaced", "worker_lost", "drained"),
)
REASON: Final = {name: code for code, name in enumerate(REASONS)}
KIND: Final = {name: code for code, name in enumerate(schema.KINDS)}

SESSIONS: Final = ("", "app", "web", "agent")
"""Names of sessions; only storms use the one with the index STORMY."""
STORMY: Final = 3

_TYPES: Final = {
    "event_time": np.int64,
    "relay": np.int8,
    "kind": np.int8,
    "src_twin": np.int64,
    "dst_twin": np.int64,
    "src_session": np.int8,
    "size_bytes": np.int64,
    "latency_us": np.int64,
    "reason": np.int8,
    "remote": np.int8,
    "uid": np.int64,
    "protocol": np.int8,
}


class Rows:
    """Columns that grow by blocks of rows."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[Column]] = {name: [] for name in _TYPES}

    def add(self, kind: str, **columns: Column | int) -> None:
        """Append rows of one kind.

        Args:
            kind: kind of all rows.
            columns: an array for each column, or one value for all rows; `event_time` must be an
                array. Other columns are 0, or null if null means that there is no value.
        """
        count = len(columns["event_time"])  # type: ignore[arg-type]
        given: dict[str, Column | int] = {
            "kind": KIND[kind],
            "latency_us": NULL,
            "remote": NULL,
            "reason": NO_REASON,
        }
        given |= columns
        for name, blocks in self._blocks.items():
            blocks.append(np.broadcast_to(np.asarray(given.get(name, 0), _TYPES[name]), count))

    def take(self, other: Rows) -> None:
        """Append all rows of another object."""
        for name, blocks in other._blocks.items():
            self._blocks[name] += blocks

    def cut(self, end_us: int) -> Rows:
        """Remove and return the rows before a time, ordered by time."""
        columns = {name: self._column(name) for name in _TYPES}
        times = columns["event_time"]
        early = np.flatnonzero(times < end_us)
        early = early[np.argsort(times[early], kind="stable")]
        late = np.flatnonzero(times >= end_us)
        before = Rows()
        for name, column in columns.items():
            before._blocks[name] = [column[early]]
            self._blocks[name] = [column[late]]
        return before

    def of_kinds(self, name: str, *kinds: str) -> Column:
        """Return one column of the rows of some kinds."""
        wanted = np.isin(self._column("kind"), [KIND[kind] for kind in kinds])
        return self._column(name)[wanted]

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each kind."""
        found = np.bincount(self._column("kind"), minlength=len(KIND))
        return {kind: int(found[code]) for kind, code in KIND.items()}

    def __len__(self) -> int:
        return sum(len(block) for block in self._blocks["kind"])

    def table(self, relays: list[str]) -> pa.Table:
        """Return all rows as a table with the schema of events."""
        words = {
            "relay": relays,
            "remote": relays,
            "kind": list(schema.KINDS),
            "src_session": list(SESSIONS),
            "reason": list(REASONS),
            "protocol": list(schema.PROTOCOLS),
        }
        arrays = []
        for field in arrow_schema.EVENTS:
            if field.name not in _TYPES:  # a column of SBD or the lattice
                arrays.append(pa.nulls(len(self), field.type))
                continue
            column = self._column(field.name)
            if field.name in words:
                absent = column == NULL if field.name == "remote" else None
                codes = pa.array(column, pa.int8(), mask=absent)
                array: Any = pa.DictionaryArray.from_arrays(codes, pa.array(words[field.name]))
                array = array.cast(field.type)
            elif field.name == "latency_us":
                array = pa.array(column, field.type, mask=column == NULL)
            else:
                array = pa.array(column, pa.int64()).cast(field.type)
            arrays.append(array)
        return pa.Table.from_arrays(arrays, schema=arrow_schema.EVENTS)

    def _column(self, name: str) -> Column:
        blocks = self._blocks[name]
        if not blocks:
            return np.empty(0, _TYPES[name])
        if len(blocks) > 1:
            self._blocks[name] = [np.concatenate(blocks)]
        return self._blocks[name][0]
