"""Results by table and days, for pages, REST and reports. Reads the database only."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

from django.db import InterfaceError, OperationalError
from django.db.models import QuerySet

from relay.access.errors import Away
from relay.analytics.models import Published
from relay.analytics.results import MODEL_OF

MAX_DAYS: Final = 400
"""Maximum days of a request: as long as events are kept by default, more than a year."""


def periods(table: str) -> list[str]:
    """Return the days or months for which a table is computed, oldest first.

    Raises:
        Away: the database does not answer.
    """
    found = Published.objects.filter(table=table).order_by("period")
    try:
        return list(found.values_list("period", flat=True))
    except (OperationalError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error


def days(table: str) -> list[date]:
    """Return the days for which a table of days is computed, oldest first."""
    return [date.fromisoformat(each) for each in periods(table)]


def rows(table: str, first: date | None = None, last: date | None = None) -> QuerySet[Any]:
    """Return the rows of a table of days, between two days if they are given."""
    found = MODEL_OF[table]._default_manager.all()
    if first is not None:
        found = found.filter(period__gte=first.isoformat())
    if last is not None:
        found = found.filter(period__lte=last.isoformat())
    return found


def of_month(table: str, month: str) -> QuerySet[Any]:
    """Return the rows of one month, from a table of months or of days."""
    return MODEL_OF[table]._default_manager.filter(period__startswith=month)
