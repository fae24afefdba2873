"""Functions that fetch pages of declared resources, from the database or from memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from relay.ops import keyset, paging
from relay.ops.paging import Page
from relay.resources.declaration import Ask
from relay.resources.fields import Field
from relay.resources.values import Number, Real


@dataclass(frozen=True, slots=True)
class Fetch:
    """Function that fetches pages, with the orders that it supports, which a resource checks."""

    run: Callable[[Ask], Page[Any]]
    orders: Collection[str]

    def __call__(self, ask: Ask) -> Page[Any]:
        return self.run(ask)


def stored(
    rows: Callable[..., QuerySet[Any]], orders: Mapping[str, str], nullable: Collection[str] = ()
) -> Fetch:
    """Return a `Fetch` of pages from a table of the database.

    Args:
        rows: function that takes the filters as keywords and returns a query set.
        orders: columns by the names of the orders.
        nullable: columns that may be null.
    """

    def fetch(ask: Ask) -> Page[Any]:
        return keyset.page(
            rows(**ask.filters),
            orders,
            order=ask.order,
            limit=ask.limit,
            cursor=ask.cursor,
            nullable=nullable,
        )

    return Fetch(fetch, orders)


def by_field(*fields: Field) -> dict[str, Callable[[Any], float | str]]:
    """Return sort keys for rows in memory, by name: those of the values of some fields."""
    return {each.name: functools.partial(_order_of, each) for each in fields}


def _order_of(field: Field, row: Any) -> float | str:
    value = field.value(row)
    if isinstance(field.type, Number | Real):
        return -1.0 if value is None else float(value)
    if isinstance(value, datetime):
        return value.timestamp()
    return "" if value is None else str(value).lower()


def in_memory(
    items: Callable[..., Iterable[Any]],
    orders: Mapping[str, Callable[[Any], float | str]],
    identity: Callable[[Any], str],
) -> Fetch:
    """Return a `Fetch` of pages from rows that are read from Redis as a whole.

    Args:
        items: function that takes the filters as keywords and returns all rows.
        orders: functions that return the sort key of a row, by the names of the orders.
        identity: function that returns a unique text for each row.
    """

    def fetch(ask: Ask) -> Page[Any]:
        key = orders[paging.one_of(ask.order, tuple(orders))[0]]
        return paging.page_of(
            items(**ask.filters),
            lambda item: (key(item), identity(item)),
            ask.order,
            ask.limit,
            ask.cursor,
        )

    return Fetch(fetch, orders)
