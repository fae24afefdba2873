"""`rmb_analytics sql "SELECT ..."`: run a query over the events and the results."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.ops import arguments, csv_text

SUMMARY: Final = "run an SQL query over events and results"

DESCRIPTION: Final = """\
Run one SELECT with DuckDB over the files of the lake: the view `events`, and a view for each table
with results. A query cannot change anything. Without a query, the command lists the views and their
columns.

  rmb_analytics sql
  rmb_analytics sql "SELECT kind, count(*) FROM events WHERE date = '2026-11-03' GROUP BY kind"
  rmb_analytics sql "FROM usage WHERE period = '2026-11' ORDER BY accepted_bytes DESC LIMIT 10"
  rmb_analytics sql --csv "FROM traffic_matrix" > matrix.csv
  rmb_analytics sql - < question.sql

A condition on `date`, as above, makes a query fast: it reads only the files of these days.
"""

SHOWN_ROWS: Final = 100
"""Default number of rows shown on a terminal; CSV and JSON have all rows."""
MOST_SHOWN: Final = 1_000_000
STEP: Final = 5000
MAX_CELL: Final = 60
MIN_WIDTH: Final = 40
_COLUMNS: Final = """
    SELECT table_name AS view, string_agg(column_name, ', ' ORDER BY column_index) AS columns
    FROM duckdb_columns() WHERE NOT internal GROUP BY table_name ORDER BY table_name
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "question", nargs="?", default="", metavar="SELECT", help="SQL; -: read it from stdin"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON document")
    form.add_argument("--csv", action="store_true", help="CSV with a header line")
    parser.add_argument(
        "--limit",
        type=arguments.whole_number(1, MOST_SHOWN),
        default=SHOWN_ROWS,
        metavar="N",
        help="maximum number of rows (100)",
    )
    parser.add_argument(
        "--memory", default="", metavar="SIZE", help="memory of DuckDB, such as 8GB (2GB)"
    )


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    from relay.analytics import queries

    question = sys.stdin.read() if options["question"] == "-" else options["question"]
    lake = Lake.configured()
    views = queries.everything(lake)
    if not views:
        raise AnalyticsError(f"there are neither events nor results in {lake.root}")
    with queries.connect(lake, views, memory=options["memory"] or queries.MEMORY) as connection:
        found = queries.ask(connection, question or _COLUMNS)
        names = [each[0] for each in found.description or ()]
        rows = queries.rows(found, STEP)
        if options["json"]:
            _write_json(out, names, rows)
        elif options["csv"]:
            _write_csv(out, names, rows)
        elif question:
            _write_table(out, names, rows, options["limit"])
        else:
            _write_views(out, rows)


def _write_json(out: OutputWrapper, names: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    """Write a list of objects, one on each line, while rows are read."""
    out.write("[", ending="")
    between = "\n"
    for row in rows:
        line = json.dumps(dict(zip(names, row, strict=True)), default=str, ensure_ascii=False)
        out.write(between + line, ending="")
        between = ",\n"
    out.write("\n]")


def _write_csv(out: OutputWrapper, names: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    out.write(csv_text.line(names), ending="")
    for row in rows:
        out.write(csv_text.line(row), ending="")


def _write_views(out: OutputWrapper, rows: Iterator[Sequence[Any]]) -> None:
    """Write a paragraph for each view, as wide as the terminal."""
    width = max(shutil.get_terminal_size().columns, MIN_WIDTH)
    between = ""
    for view, columns in rows:
        out.write(f"{between}{view}")
        out.write(textwrap.fill(columns, width, initial_indent="  ", subsequent_indent="  "))
        between = "\n"


def _write_table(
    out: OutputWrapper, names: Sequence[str], rows: Iterator[Sequence[Any]], limit: int
) -> None:
    shown: list[list[str]] = []
    more = False
    for row in rows:
        if len(shown) == limit:
            more = True
            break
        shown.append([_cell(value) for value in row])
    numbers = [all(_is_number(row[place]) for row in shown) for place in range(len(names))]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    for row in [list(names), ["-" * width for width in widths], *shown]:
        cells = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        )
        out.write("  ".join(cells).rstrip())
    if more:
        out.write(f"... more than {limit:,} rows: --limit, --csv or --json show them")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = "".join(each if each.isprintable() else "?" for each in str(value))
    return f"{text[: MAX_CELL - 1]}…" if len(text) > MAX_CELL else text


def _is_number(text: str) -> bool:
    return text == "-" or text.removeprefix("-").replace(".", "", 1).isdecimal()
