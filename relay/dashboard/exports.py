"""Tables as CSV and JSON files, generated while they are sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from relay.ops import csv_text

if TYPE_CHECKING:
    from relay.dashboard.tables import Column, Row


def csv_lines(columns: Sequence[Column], rows: Iterator[Row]) -> Iterator[str]:
    """Yield a line of column names, then one line for each row."""
    yield csv_text.line(each.key for each in columns)
    for row in rows:
        yield csv_text.line(_plain(row.values.get(each.key)) for each in columns)


def json_lines(columns: Sequence[Column], rows: Iterator[Row]) -> Iterator[str]:
    """Yield a list of objects, one on each line."""
    between = "[\n"
    for row in rows:
        values = {each.key: _plain(row.values.get(each.key)) for each in columns}
        yield between + json.dumps(values, ensure_ascii=False)
        between = ",\n"
    yield "[]\n" if between.startswith("[") else "\n]\n"


def _plain(value: Any) -> Any:
    """Return a value as it is written to a file."""
    if isinstance(value, datetime):
        return value.isoformat()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
