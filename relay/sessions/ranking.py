"""Pages of database rows in the order of their rates, which are in Redis.

Active rows come in the order of their rates, and are found by name. All others have a rate of 0 and
come in the order of their ids. Rates change between two pages, so a row may appear twice or be
missed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from django.db.models import Model, QuerySet

from relay.access.errors import Invalid
from relay.ops import paging
from relay.ops.paging import Page

Record = TypeVar("Record", bound=Model)
Name = TypeVar("Name", bound=Hashable)

Part = tuple[tuple[Any, ...], list[Record]]
"""Some rows, and the position after them."""

Place = Callable[[Record], tuple[Any, ...]]

NAMES: Final = 400
"""Rows requested by one query: SQLite takes a thousand values."""
MAX_DIGITS: Final = 18
MAX_LOOKS: Final = 50
"""Maximum number of queries for one page. If filters leave too few rows of that many parts, the
page has fewer items than it could."""


def page(
    parts: Iterable[Part[Record]],
    place: Place[Record],
    order: str,
    wanted: int,
    *,
    keep: Callable[[list[Record]], list[Record]] = lambda rows: rows,
) -> Page[Record]:
    """Make a page of the first rows of some parts.

    Args:
        parts: rows from the beginning of the page on.
        place: returns the position of a row.
        order: order of the list.
        wanted: number of rows on the page.
        keep: selects the rows that are shown.
    """
    found: list[Record] = []
    behind: tuple[Any, ...] = ()
    for looks, (end, part) in enumerate(parts):
        if looks == MAX_LOOKS:
            return Page(found, paging.encode(order, *behind))
        for row in keep(part):
            if len(found) == wanted:
                return Page(found, paging.encode(order, *place(found[-1])))
            found.append(row)
        behind = end
    return Page(found, "")


@dataclass(frozen=True)
class Ranking(Generic[Record, Name]):
    """Rows by rate.

    Attributes:
        rows: filtered rows, in no order.
        rates: rates above 0, by name.
        named: filters rows by names.
        name: returns the name of a row, whose text breaks ties.
        descending: whether the highest rate comes first.
    """

    rows: QuerySet[Record]
    rates: Mapping[Name, float]
    named: Callable[[QuerySet[Record], Sequence[Name]], Iterable[Record]]
    name: Callable[[Record], Name]
    descending: bool

    def place(self, row: Record) -> tuple[float, str]:
        """Return the position of a row: its rate and its name, or 0 and its id."""
        name = self.name(row)
        return (self.rates[name], str(name)) if name in self.rates else (0.0, str(row.pk))

    def parts(self, cursor: str, order: str, count: int) -> Iterator[Part[Record]]:
        """Yield the rows after a cursor, in order.

        Args:
            cursor: cursor of this order, or empty.
            count: approximate number of rows in a part.

        Raises:
            Invalid: the cursor does not belong to this list.
        """
        rate, text = paging.decode(cursor, order, float, str) or (None, "")
        if rate == 0 and not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS):
            raise Invalid(fields={"cursor": "is not a cursor of this list"})
        if self.descending:
            return chain(
                () if rate == 0 else self._active(rate, text),
                self._idle(int(text) if rate == 0 else None, count),
            )
        return chain(
            () if rate else self._idle(int(text) if rate == 0 else None, count),
            self._active(rate or None, text),
        )

    def _active(self, rate: float | None, text: str) -> Iterator[Part[Record]]:
        sign = -1 if self.descending else 1
        ranked = sorted((sign * rate, str(name), name) for name, rate in self.rates.items())
        if rate is not None:
            after = (sign * rate, text)
            del ranked[: bisect_right(ranked, after, key=lambda each: each[:2])]
        for start in range(0, len(ranked), NAMES):
            names = [name for _, _, name in ranked[start : start + NAMES]]
            found = {self.name(row): row for row in self.named(self.rows, names)}
            end = (self.rates[names[-1]], str(names[-1]))
            yield end, [found[name] for name in names if name in found]

    def _idle(self, last: int | None, count: int) -> Iterator[Part[Record]]:
        sign, beyond = ("-", "lt") if self.descending else ("", "gt")
        rows = self.rows.order_by(f"{sign}pk")
        while True:
            behind = rows if last is None else rows.filter(**{f"pk__{beyond}": last})
            part = list(behind[:count])
            if not part:
                return
            last = part[-1].pk
            yield (0.0, str(last)), [row for row in part if self.name(row) not in self.rates]
