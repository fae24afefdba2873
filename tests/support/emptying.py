"""Empty the database after a test that commits, in a tenth of Django's time.

When the tables are empty, `flush` lets every app look up and write its content types, permissions
and groups, row by row, which takes most of the time of a short test. Here this happens once, and
later the resulting rows are written again unchanged.
"""

from __future__ import annotations

from typing import Any

from django.core.management.commands import flush
from django.core.management.sql import emit_post_migrate_signal
from django.db import connections, transaction

_Insert = tuple[str, list[tuple[Any, ...]]]

_first_rows: dict[tuple[str, str], list[_Insert]] = {}


def quicken() -> None:
    """Let `flush` write the first rows of a database directly, from the second time on."""
    flush.emit_post_migrate_signal = _write_first_rows  # type: ignore[attr-defined]


def _write_first_rows(verbosity: int, interactive: bool, database: str) -> None:
    connection = connections[database]
    place = database, str(connection.settings_dict["NAME"])
    inserts = _first_rows.get(place)
    if inserts is None:
        emit_post_migrate_signal(verbosity, interactive, database)
        _first_rows[place] = _read(database)
        return
    with transaction.atomic(using=database), connection.cursor() as cursor:
        for insert, rows in inserts:
            cursor.executemany(insert, rows)


def _read(database: str) -> list[_Insert]:
    connection = connections[database]
    found = []
    with connection.cursor() as cursor:
        for table in connection.introspection.django_table_names(only_existing=True):
            name = connection.ops.quote_name(table)
            cursor.execute(f"SELECT * FROM {name}")
            rows = cursor.fetchall()
            if rows:
                values = ", ".join(["%s"] * len(rows[0]))
                found.append((f"INSERT INTO {name} VALUES ({values})", rows))
    return found
