"""Import and export of twins as CSV files with the header `id,account,pk,relays`.

An import reads the whole file first: it parses the lines into a temporary table, which blocks no
other process. Only when the file is known to be valid, one statement in one short transaction
applies the differences. So an import is all or nothing, and the relay works meanwhile.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TextIO

from django.db import connection
from django.utils import timezone

from relay.access import matrix
from relay.access.actor import Actor
from relay.audit import services as audit
from relay.twins.fields import (
    FieldError,
    TwinValues,
    join_relays,
    parse_values,
    to_texts,
)
from relay.twins.models import Twin
from relay.twins.services import announce_on_commit, in_registry, of_chain
from relay.twins.source import split_relays

HEADER: Final = ("id", "account", "pk", "relays")

MAX_LINE_CHARS: Final = 16 * 1024
"""Characters in one line, at most; a line of the longest fields takes about 1,300."""

MAX_ROWS: Final = 5_000_000
"""Twins in one file, at most: an import keeps the line numbers of all ids in memory, to report
duplicates."""

MAX_ERRORS: Final = 100
"""Errors kept for display; further ones are only counted."""

STAGE_ROWS: Final = 2000
PROGRESS_ROWS: Final = 10_000

_STAGE: Final = "relay_twins_stage"


class LineError(NamedTuple):
    """A line that is not a valid twin, and the reason."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass(slots=True)
class ImportReport:
    """Result of an import."""

    rows: int = 0
    added: int = 0
    changed: int = 0
    error_count: int = 0
    errors: list[LineError] = field(default_factory=list)

    def refuse(self, error: LineError) -> None:
        self.error_count += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(error)


class ImportRefusedError(Exception):
    """Nothing was imported, because of the errors in `report`."""

    def __init__(self, report: ImportReport) -> None:
        super().__init__(f"{report.error_count} lines are wrong, nothing was imported")
        self.report = report


def read(file: TextIO) -> Iterator[tuple[int, TwinValues] | LineError]:
    """Yield for each line its number and twin, or its error. After a wrong header, nothing else."""
    rows = csv.reader(_bounded_lines(file), strict=True)
    first_lines: dict[int, int] = {}
    header = True
    while True:
        try:
            row = next(rows)
        except StopIteration:
            if header:
                yield LineError(1, f"the header {','.join(HEADER)} is missing")
            return
        except _TooLongError as error:
            yield LineError(rows.line_num + 1, str(error))  # the reader has not counted that line
            return
        except csv.Error as error:
            yield LineError(rows.line_num, str(error))
            if header:
                return
            continue
        if header:
            header = False
            if tuple(name.strip().lower() for name in row) != HEADER:
                yield LineError(rows.line_num, f"the header must be {','.join(HEADER)}")
                return
            continue
        if not row:
            continue
        if len(first_lines) >= MAX_ROWS:
            yield LineError(rows.line_num, f"more than {MAX_ROWS} twins in one file")
            return
        yield _parse(rows.line_num, row, first_lines)


def import_twins(
    file: TextIO,
    *,
    actor: Actor,
    keep_going: bool = False,
    progress: Callable[[int], None] = lambda rows: None,
) -> ImportReport:
    """Add and change twins. Twins that the file does not list stay unchanged.

    Args:
        file: open text file, `newline=""`.
        actor: actor that imports them.
        keep_going: whether to import valid lines even if others are invalid.
        progress: function called now and then with the number of rows read so far.

    Raises:
        relay.access.errors.Denied: the actor lacks the permission.
        relay.access.errors.Conflict: twins come from the chain.
        ImportRefusedError: a line is invalid and `keep_going` is off; nothing was changed.
    """
    actor.require(matrix.permission_of("twin.import"))
    if not in_registry():
        raise of_chain()
    report = ImportReport()
    with connection.cursor() as cursor:
        kind = connection.data_types["BinaryField"]
        cursor.execute(
            f"CREATE TEMPORARY TABLE {_STAGE}"
            f" (id bigint PRIMARY KEY, account {kind} NOT NULL, pk {kind}, relays text NOT NULL)"
        )
    try:
        _stage(file, report, progress)
        if report.error_count and not keep_going:
            raise ImportRefusedError(report)
        _take_over(report, actor)
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE {_STAGE}")
    return report


def export_twins(file: TextIO) -> int:
    """Write all twins.

    Returns:
        Number of twins.
    """
    writer = csv.writer(file)
    writer.writerow(HEADER)
    count = 0
    fields = ("id", "account", "encryption_key", "relays")
    for twin, account, pk, relays in Twin.objects.values_list(*fields).iterator():
        values = TwinValues(twin, bytes(account), bytes(pk) if pk else None, split_relays(relays))
        writer.writerow(to_texts(values))
        count += 1
    return count


class _TooLongError(Exception):
    """A line is too long, so that the beginning of the next one is unknown."""


def _bounded_lines(file: TextIO) -> Iterator[str]:
    while line := file.readline(MAX_LINE_CHARS):
        if len(line) == MAX_LINE_CHARS and not line.endswith("\n"):
            raise _TooLongError(f"longer than {MAX_LINE_CHARS} characters")
        yield line


def _parse(
    line: int, row: list[str], first_lines: dict[int, int]
) -> tuple[int, TwinValues] | LineError:
    if len(row) != len(HEADER):
        return LineError(line, f"{len(row)} fields, there must be {len(HEADER)}")
    try:
        values = parse_values(*row)
    except FieldError as error:
        return LineError(line, str(error))
    first = first_lines.setdefault(values.id, line)
    if first != line:
        return LineError(line, f"id: twin {values.id} is on line {first} already")
    return line, values


def _stage(file: TextIO, report: ImportReport, progress: Callable[[int], None]) -> None:
    insert = f"INSERT INTO {_STAGE} (id, account, pk, relays) VALUES (%s, %s, %s, %s)"
    waiting: list[tuple[int, bytes, bytes | None, str]] = []
    with connection.cursor() as cursor:
        for found in read(file):
            report.rows += 1
            if report.rows % PROGRESS_ROWS == 0:
                progress(report.rows)
            if isinstance(found, LineError):
                report.refuse(found)
                continue
            twin, account, pk, relays = found[1]
            waiting.append((twin, account, pk, join_relays(relays)))
            if len(waiting) == STAGE_ROWS:
                cursor.executemany(insert, waiting)
                waiting.clear()
        if waiting:
            cursor.executemany(insert, waiting)


def _take_over(report: ImportReport, actor: Actor) -> None:
    table = connection.ops.quote_name(Twin._meta.db_table)
    # "WHERE true" keeps SQLite from reading ON CONFLICT as the condition of a join.
    statement = f"""
        INSERT INTO {table} (id, account, pk, relays, source, updated, version)
        SELECT id, account, pk, relays, %s, %s, 1 FROM {_STAGE} WHERE true
        ON CONFLICT (id) DO UPDATE SET
            account = excluded.account, pk = excluded.pk, relays = excluded.relays,
            source = excluded.source, updated = excluded.updated, version = {table}.version + 1,
            height = NULL, stale_since = NULL
        WHERE NOT (
            {table}.source = excluded.source
            AND {table}.account = excluded.account AND {table}.relays = excluded.relays
            AND COALESCE({table}.pk = excluded.pk, {table}.pk IS NULL AND excluded.pk IS NULL)
        )
    """
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    with audit.change(actor, "twin.import") as change, connection.cursor() as cursor:
        before = Twin.objects.count()
        cursor.execute(statement, [Twin.Source.REGISTRY.value, now])
        written = cursor.rowcount
        report.added = Twin.objects.count() - before
        report.changed = written - report.added
        change.after = {
            "rows": report.rows,
            "added": report.added,
            "changed": report.changed,
            "errors": report.error_count,
        }
        if written:
            announce_on_commit(None)
