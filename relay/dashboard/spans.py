"""The days or the month that a page of analytics shows: from its address, else the latest ones."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final, NamedTuple

from django.http import HttpRequest

from relay.access.errors import Invalid
from relay.analytics import listing
from relay.dashboard.tables import given, href
from relay.ops import storable

DEFAULT_DAYS: Final = 30
SPANS: Final = ((1, "1 d"), (7, "7 d"), (30, "30 d"), (90, "90 d"))


class Days(NamedTuple):
    """Some days, both ends included.

    Attributes:
        newest: the latest computed day.
        computed: number of the days that are computed.
        links: (label, address, whether selected) of usual spans up to the newest day.
        kept: parameters of the page that selecting days must preserve.
    """

    first: date
    last: date
    newest: date
    computed: int
    links: list[tuple[str, str, bool]]
    kept: list[tuple[str, str]]

    @property
    def wanted(self) -> int:
        return (self.last - self.first).days + 1


def days(request: HttpRequest, table: str) -> Days | None:
    """Return the days that a request selects; None if no day of the table is computed.

    Raises:
        Invalid: the address does not contain a valid span of days.
        Away: the database does not answer.
    """
    known = listing.days(table)
    if not known:
        return None
    newest = known[-1]
    last = _day(request, "to") or newest
    first = _day(request, "from") or last - timedelta(days=DEFAULT_DAYS - 1)
    if last < first:
        raise Invalid(fields={"from": "is after the last day"})
    if (last - first).days >= listing.MAX_DAYS:
        raise Invalid(fields={"from": f"at most {listing.MAX_DAYS} days at once"})
    computed = sum(first <= day <= last for day in known)
    return Days(
        first,
        last,
        newest,
        computed,
        _links(request, newest, first, last),
        _kept(request, "from", "to"),
    )


class Day(NamedTuple):
    """One day.

    Attributes:
        computed: whether there are results of the day.
        before: the previous computed day, and `after` the next one; None at the ends.
    """

    day: date
    computed: bool
    before: date | None
    after: date | None
    before_href: str
    after_href: str
    kept: list[tuple[str, str]]


def day(request: HttpRequest, table: str) -> Day | None:
    """Return the day that a request selects, else the latest; None if no day is computed.

    Raises:
        Invalid: the address does not contain a valid day.
        Away: the database does not answer.
    """
    known = listing.days(table)
    if not known:
        return None
    chosen = _day(request, "day") or known[-1]
    before = max((each for each in known if each < chosen), default=None)
    after = min((each for each in known if each > chosen), default=None)
    return Day(
        chosen,
        chosen in known,
        before,
        after,
        href(request, day=before.isoformat()) if before else "",
        href(request, day=after.isoformat()) if after else "",
        _kept(request, "day"),
    )


class Month(NamedTuple):
    """One month, `YYYY-MM`.

    Attributes:
        choices: the computed months, the latest first.
    """

    month: str
    choices: list[str]
    kept: list[tuple[str, str]]


def month(request: HttpRequest, table: str) -> Month | None:
    """Return the month that a request selects, else the latest one; None if none is computed.

    Raises:
        Invalid: the month in the address is not computed.
        Away: the database does not answer.
    """
    known = listing.periods(table)
    if not known:
        return None
    chosen = given(request, "month") or known[-1]
    if chosen not in known:
        raise Invalid(fields={"month": "is not computed"})
    return Month(chosen, known[::-1], _kept(request, "month"))


def _day(request: HttpRequest, name: str) -> date | None:
    text = given(request, name)
    if not text:
        return None
    try:
        found = date.fromisoformat(text)
    except ValueError:
        found = date.min
    if not storable.is_within_reach(found):
        raise Invalid(fields={name: "must be a day such as 2026-01-31"})
    return found


def _links(
    request: HttpRequest, newest: date, first: date, last: date
) -> list[tuple[str, str, bool]]:
    found = []
    for count, label in SPANS:
        begin = newest - timedelta(days=count - 1)
        address = href(request, **{"from": begin.isoformat(), "to": newest.isoformat()})
        found.append((label, address, (first, last) == (begin, newest)))
    return found


def _kept(request: HttpRequest, *own: str) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, values in request.GET.lists()
        if name not in (*own, "export") and not name.endswith("cursor")
        for value in values
    ]
