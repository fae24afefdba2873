"""The tables of the jobs, computed independently in SQL for DuckDB from their definitions alone.

Each table has a module with a `QUERY` over the view `events`, with the parameters `$start` and
`$end` (bounds of the window, in microseconds since 1970). `events` has the columns of the schema,
and `us`, the event's time in microseconds. It contains only events of RMB; the view `of_all`
contains all events.
"""

from __future__ import annotations

import importlib
from pathlib import Path

import duckdb

_COLUMNS = {
    "event_time": "TIMESTAMPTZ",
    "relay": "VARCHAR",
    "kind": "VARCHAR",
    "src_twin": "BIGINT",
    "dst_twin": "BIGINT",
    "src_session": "VARCHAR",
    "size_bytes": "BIGINT",
    "latency_us": "BIGINT",
    "reason": "VARCHAR",
    "remote": "VARCHAR",
    "uid": "BIGINT",
    "protocol": "VARCHAR",
    "src_key": "VARCHAR",
    "dst_key": "VARCHAR",
    "link": "VARCHAR",
    "contract": "VARCHAR",
    "operation": "VARCHAR",
    "host_id": "VARCHAR",
    "answer_bytes": "BIGINT",
}


def connect(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open a database with the view `events` over the files of a lake, which may have no files."""
    connection = duckdb.connect(config={"threads": 2, "memory_limit": "1GB"})
    types = ", ".join(f"{name} {type_}" for name, type_ in _COLUMNS.items())
    connection.execute(f"CREATE TABLE no_events ({types})")
    files = sorted(map(str, folder.rglob("*.parquet")))
    read = f"UNION ALL BY NAME FROM read_parquet({files}, union_by_name := true)" if files else ""
    connection.execute(
        f"CREATE VIEW of_all AS SELECT {', '.join(_COLUMNS)}, epoch_us(event_time) AS us "
        f"FROM (FROM no_events {read})"
    )
    connection.execute(
        "CREATE VIEW events AS SELECT * FROM of_all WHERE ifnull(protocol, 'rmb') = 'rmb'"
    )
    return connection


def query(table: str) -> str:
    """Return the SQL query of a table."""
    return importlib.import_module(f"{__name__}.{table}").QUERY
