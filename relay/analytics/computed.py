"""Computed periods of each table of results, for pages, REST and reports."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import Count, Max, Min, Sum

from relay.analytics.models import Published
from relay.analytics.spark.catalogue import JOBS


class Computed(NamedTuple):
    """Computed periods of one table.

    Attributes:
        table: name of the table.
        job: job that computes it.
        in_database: whether its rows are in the database as well.
        periods: number of computed days or months.
        first, last: first and last computed day or month.
        rows: number of rows in them.
        size_bytes: size of their files.
        made: time of the last result.
    """

    table: str
    job: str
    in_database: bool
    periods: int
    first: str | None
    last: str | None
    rows: int
    size_bytes: int
    made: datetime | None


def look() -> list[Computed]:
    """Return all tables, in the order of the jobs, including those without a computed period."""
    found: Any = Published.objects.values("table").annotate(
        count=Count("pk"),
        first=Min("period"),
        last=Max("period"),
        rows=Sum("result_rows"),
        size=Sum("size_bytes"),
        made=Max("published_at"),
    )
    known: dict[str, dict[str, Any]] = {each["table"]: each for each in found}
    return [
        _computed(table.name, job.name, table.in_database, known.get(table.name, {}))
        for job in JOBS.values()
        for table in job.tables
    ]


def _computed(table: str, job: str, in_database: bool, found: dict[str, Any]) -> Computed:
    return Computed(
        table,
        job,
        in_database,
        found.get("count", 0),
        found.get("first"),
        found.get("last"),
        found.get("rows", 0),
        found.get("size", 0),
        found.get("made"),
    )
