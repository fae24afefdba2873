"""Results as pages, REST and reports ask for them: by table and days. Reads the database only."""

from __future__ import annotations

from datetime import date
from typing import Any, Final

from django.db import InterfaceError, OperationalError
from django.db.models import QuerySet

from relay.access.errors import Away
from relay.analytics.models import Published
from relay.analytics.results import MODEL_OF

MAX_DAYS: Final = 400
"""As long as events are kept by default, so that a year fits with its neighbours."""


def periods(table: str) -> list[str]:
    """The days or months a table is computed for, the oldest first.

    Raises:
        Away: the database does not answer.
    """
    found = Published.objects.filter(table=table).order_by("period")
    try:
        return list(found.values_list("period", flat=True))
    except (OperationalError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error


def days(table: str) -> list[date]:
    """The same of a table of days."""
    return [date.fromisoformat(each) for each in periods(table)]


def rows(table: str, first: date | None = None, last: date | None = None) -> QuerySet[Any]:
    """The rows of a table of days, of all or of some of them."""
    found = MODEL_OF[table]._default_manager.all()
    if first is not None:
        found = found.filter(period__gte=first.isoformat())
    if last is not None:
        found = found.filter(period__lte=last.isoformat())
    return found


def of_month(table: str, month: str) -> QuerySet[Any]:
    """The rows of one month, of a table of months or of days."""
    return MODEL_OF[table]._default_manager.filter(period__startswith=month)
