"""What the jobs compute, once more in SQL for DuckDB, from the definitions alone.

A module for each table: `QUERY`, over the view `events`, with the parameters `$start` and `$end`
(microseconds since 1970 of the window). `events` has the columns of the schema, and `us`, the
event's time in microseconds; it has only those of RMB, `of_all` has all.
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
    """A database with the view `events` over the files of a lake; there may be none."""
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
    """The SQL of a table."""
    return importlib.import_module(f"{__name__}.{table}").QUERY
