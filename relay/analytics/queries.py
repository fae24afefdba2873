"""SQL queries over the events and the results, answered by DuckDB in this process.

The connection has a view `events`, and a view for each table with results, over the files that
Spark reads and writes. Queries cannot change anything: only SELECT is run, and no other file of the
machine is opened. Memory is limited; queries that need more use the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from relay.analytics import ledger, plain_paths
from relay.analytics.errors import AnalyticsError, MissingPackages
from relay.analytics.lake import Lake
from relay.analytics.spark.catalogue import JOBS, tables
from relay.analytics.spark.protocols import RMB

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY: Final = "2GB"
"""Memory of DuckDB, which would use four fifths of the machine by default."""

_ADDED_TO_EVENTS: Final = {
    "protocol": f"'{RMB}'",
    "src_key": "CAST(NULL AS VARCHAR)",
    "dst_key": "CAST(NULL AS VARCHAR)",
    "link": "CAST(NULL AS VARCHAR)",
    "contract": "CAST(NULL AS VARCHAR)",
    "operation": "CAST(NULL AS VARCHAR)",
    "host_id": "CAST(NULL AS VARCHAR)",
    "answer_bytes": "CAST(NULL AS BIGINT)",
}
"""Columns that events of earlier releases lack, and their values for these events, in SQL."""

_ANALYZE: Final = re.compile(rb"analy[sz]e\b", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"Table with name (\w+) does not exist")


def connect(
    lake: Lake,
    views: Mapping[str, Sequence[Path]],
    *,
    memory: str = MEMORY,
    threads: int | None = None,
) -> DuckDBPyConnection:
    """Return a connection with some views, which the caller closes.

    Args:
        lake: lake of the files.
        views: Parquet files of each view, by its name.
        memory: memory limit in the form of DuckDB, such as 512MB.
        threads: number of threads; None: number of cores of this machine.

    Raises:
        AnalyticsError: DuckDB is not installed, or refuses the memory limit.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingPackages("duckdb") from None
    root = plain_paths.plain(lake.root)
    temporary = root / "cache" / "duckdb"
    temporary.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect(":memory:")
    try:
        chosen = {
            "memory_limit": memory,
            "temp_directory": str(temporary),
            "threads": threads or os.cpu_count() or 1,
            "TimeZone": "UTC",
            "autoinstall_known_extensions": False,
            "allowed_directories": [str(root / "events"), str(root / "results")],
        }
        for name, value in chosen.items():
            connection.execute(f"SET {name} = {_literal(value)}")
        for name, files in views.items():
            given = [root / path.relative_to(lake.root) for path in files]
            reading = _reading(name, given)
            columns = _columns(connection, name, reading)
            connection.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM {reading}")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except duckdb.Error as error:
        connection.close()
        raise AnalyticsError(_first_line(error)) from None
    return connection


def everything(lake: Lake) -> dict[str, list[Path]]:
    """Return the files of the events, and of each table that has results.

    Raises:
        LakeError: a merged file does not list the files it replaces.
    """
    found = {
        table.name: ledger.result_files(lake, table.name)
        for job in JOBS.values()
        for table in job.tables
    }
    found["events"] = [file.path for file in lake.files(date.min, date.max)]
    return {name: files for name, files in found.items() if files}


def ask(connection: DuckDBPyConnection, question: str) -> DuckDBPyConnection:
    """Run one SELECT; fetch its rows from the returned connection.

    Raises:
        AnalyticsError: the query is not a SELECT, or fails; the text says why.
    """
    import duckdb

    try:
        _refuse_changes(connection, question)
        return connection.execute(question)
    except duckdb.Error as error:
        raise AnalyticsError(_explained(error)) from None


def rows(found: DuckDBPyConnection, step: int) -> Iterator[Sequence[Any]]:
    """Yield all rows of an answer.

    Args:
        found: return value of `ask`.
        step: number of rows in memory.

    Raises:
        AnalyticsError: a row cannot be computed; the text says why.
    """
    import duckdb

    try:
        while batch := found.fetchmany(step):
            yield from batch
    except duckdb.Error as error:
        raise AnalyticsError(_explained(error)) from None


def _refuse_changes(connection: Any, question: str) -> None:
    from duckdb import StatementType

    statements = connection.extract_statements(question)
    if len(statements) != 1:
        raise AnalyticsError("one question at a time")
    kind = statements[0].type
    if kind == StatementType.EXPLAIN:
        kind = _kind_of_explained(connection, question)
    if kind != StatementType.SELECT:
        raise AnalyticsError(f"only SELECT is answered, not {kind.name}")


def _kind_of_explained(connection: Any, question: str) -> Any:
    """Return the type of the statement in `EXPLAIN [ANALYZE] [(options)]`; ANALYZE runs it."""
    import duckdb

    text = question.encode()  # the tokenizer counts bytes
    words = [at for at, kind in duckdb.tokenize(question) if kind != duckdb.token_type.comment]
    first = 2 if _ANALYZE.match(text, words[1]) else 1
    for at in (words[first], _after_brackets(text, words[first:])):
        try:
            statements = connection.extract_statements(text[at:].decode())
        except duckdb.ParserException:
            continue  # the brackets contain options, not a SELECT
        if len(statements) == 1:
            return statements[0].type
    raise AnalyticsError("only SELECT is answered, and EXPLAIN of one")


def _after_brackets(text: bytes, words: Sequence[int]) -> int:
    """Return where the word after a pair of brackets begins, or the end of the text."""
    depth = 0
    for at, following in zip(words, [*words[1:], len(text)], strict=True):
        depth += {b"(": 1, b")": -1}.get(text[at : at + 1], 0)
        if not depth:
            return following
    return len(text)


def _reading(name: str, files: Sequence[Path]) -> str:
    """Return SQL for the rows of some files; columns that older files lack are null."""
    options = "union_by_name = true"
    if name == "events":  # the folders name the day and the hour
        options += ", hive_types = {'date': DATE, 'hour': INTEGER}"
    return f"read_parquet({_literal([str(path) for path in files])}, {options})"


def _columns(connection: DuckDBPyConnection, name: str, reading: str) -> str:
    """Return the columns of a view; those of earlier releases get their present names."""
    table = next((table for table in tables() if table.name == name), None)
    renamed, added = (dict(table.renamed), dict(table.added)) if table else ({}, {})
    if name == "events":
        added = _ADDED_TO_EVENTS
    if not renamed and not added:
        return "*"
    found = [row[0] for row in connection.execute(f"DESCRIBE FROM {reading}").fetchall()]
    selected: dict[str, list[str]] = {}
    for column in found:
        selected.setdefault(renamed.get(column, column), []).append(f'"{column}"')
    for column, its in added.items():
        selected.setdefault(column, []).append(its)
    return ", ".join(f'{_either(its)} AS "{now}"' for now, its in selected.items())


def _either(its: list[str]) -> str:
    """Return SQL for the first non-null value; filters are pushed down only to a plain column."""
    return its[0] if len(its) == 1 else f"coalesce({', '.join(its)})"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    return str(value)


def _explained(error: Exception) -> str:
    found = _UNKNOWN.search(str(error))
    name = found[1] if found else ""
    if name == "events":
        return "there are no events yet: analytics.record writes down what the relay does"
    for job in JOBS.values():
        if name in [table.name for table in job.tables]:
            return f"{name} is not computed yet: rmb_analytics run {job.name}"
    return str(error).strip()


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
