"""Questions in SQL over the events and the results, answered by DuckDB in this process.

The connection has a view `events` and one for each table with results, over the same files Spark
reads and writes. Nothing can be changed by it: only SELECT is run, no other file of this machine is
opened, and memory has a bound, beyond which it works on disk.
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
"""DuckDB would take four fifths of the machine by itself."""

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
"""Columns that events of earlier releases lack, and what they have in these, in SQL."""

_ANALYZE: Final = re.compile(rb"analy[sz]e\b", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"Table with name (\w+) does not exist")


def connect(
    lake: Lake,
    views: Mapping[str, Sequence[Path]],
    *,
    memory: str = MEMORY,
    threads: int | None = None,
) -> DuckDBPyConnection:
    """A connection with some views; to be closed by whoever asked.

    Args:
        lake: where the files are.
        views: by name, the Parquet files of each.
        memory: as DuckDB writes it, such as 512MB.
        threads: None: those of this machine.

    Raises:
        AnalyticsError: DuckDB is not installed, or does not take the memory for one.
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
    """The files of the events and of each table that has results.

    Raises:
        LakeError: a merged file does not tell what it stands for.
    """
    found = {
        table.name: ledger.result_files(lake, table.name)
        for job in JOBS.values()
        for table in job.tables
    }
    found["events"] = [file.path for file in lake.files(date.min, date.max)]
    return {name: files for name, files in found.items() if files}


def ask(connection: DuckDBPyConnection, question: str) -> DuckDBPyConnection:
    """Run one SELECT; what came of it is fetched from what is returned.

    Raises:
        AnalyticsError: it is none, or cannot be answered; the text says why.
    """
    import duckdb

    try:
        _refuse_changes(connection, question)
        return connection.execute(question)
    except duckdb.Error as error:
        raise AnalyticsError(_explained(error)) from None


def rows(found: DuckDBPyConnection, step: int) -> Iterator[Sequence[Any]]:
    """All rows of an answer.

    Args:
        found: what `ask` returned.
        step: how many are in memory.

    Raises:
        AnalyticsError: one cannot be computed; the text says why.
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
    """What `EXPLAIN [ANALYZE] [(options)]` is about: with ANALYZE it is run."""
    import duckdb

    text = question.encode()  # the places of words are those of bytes
    words = [at for at, kind in duckdb.tokenize(question) if kind != duckdb.token_type.comment]
    first = 2 if _ANALYZE.match(text, words[1]) else 1
    for at in (words[first], _after_brackets(text, words[first:])):
        try:
            statements = connection.extract_statements(text[at:].decode())
        except duckdb.ParserException:
            continue  # what is in brackets are options, and no SELECT
        if len(statements) == 1:
            return statements[0].type
    raise AnalyticsError("only SELECT is answered, and EXPLAIN of one")


def _after_brackets(text: bytes, words: Sequence[int]) -> int:
    """Where the word after a pair of brackets begins; the end if there is none."""
    depth = 0
    for at, following in zip(words, [*words[1:], len(text)], strict=True):
        depth += {b"(": 1, b")": -1}.get(text[at : at + 1], 0)
        if not depth:
            return following
    return len(text)


def _reading(name: str, files: Sequence[Path]) -> str:
    """What stands for the rows of some files. Files of an older schema lack columns: those are
    null."""
    options = "union_by_name = true"
    if name == "events":  # the folders tell the day and the hour
        options += ", hive_types = {'date': DATE, 'hour': INTEGER}"
    return f"read_parquet({_literal([str(path) for path in files])}, {options})"


def _columns(connection: DuckDBPyConnection, name: str, reading: str) -> str:
    """What a view selects: columns of files of earlier releases have the names of this one."""
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
    """The first that is not null; of one alone, a filter reaches the files."""
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
