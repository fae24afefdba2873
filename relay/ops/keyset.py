"""Pages of database tables, by cursor (for lists in memory: `relay.ops.paging`).

A cursor holds the position where the previous page ended: the values that the rows are ordered by,
and the id that makes them unique. So a page costs the same wherever it is, and no row is repeated
or skipped while others are added and removed. Totals are not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import InterfaceError, OperationalError, connection
from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from relay.access.errors import Away, Invalid
from relay.ops import paging, storable
from relay.ops.paging import Page

Row = TypeVar("Row", bound=Model)

Scalar = str | int | float | bool


def page(
    rows: QuerySet[Row],
    orders: Mapping[str, str],
    *,
    order: str,
    limit: int,
    cursor: str = "",
    nullable: Collection[str] = (),
) -> Page[Row]:
    """Return one page of a table.

    Args:
        rows: Rows, already filtered.
        orders: Field to order by, for each public name of an order.
        order: One of `orders`, optionally with a minus sign.
        limit: Number of items on the page.
        cursor: Cursor of the previous page.
        nullable: Fields that may be null in these rows.

    Raises:
        Invalid: Order or cursor is not valid.
        Away: The database does not answer.
    """
    name, descending = paging.one_of(order, tuple(orders))
    primary = rows.model._meta.pk.name
    field = primary if orders[name] == "pk" else orders[name]
    fields = [primary] if field == primary else [field, primary]
    sign = "-" if descending else ""
    ordered = rows.order_by(*(f"{sign}{each}" for each in fields))
    if cursor:
        places = [
            None
            if value is None and each in nullable
            else _value(rows.model._meta.get_field(each), value)
            for each, value in zip(fields, decode(cursor, order, len(fields)), strict=True)
        ]
        if field == primary:
            after = Q(**{"pk__lt" if descending else "pk__gt": places[0]})
        else:
            after = behind(field, (places[0], places[1]), descending, nullable=field in nullable)
        ordered = ordered.filter(after)
    try:
        found = list(ordered[: limit + 1])
    except (OperationalError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error
    if len(found) <= limit:
        return Page(found, "")
    found = found[:limit]
    return Page(found, encode(order, [getattr(found[-1], each) for each in fields]))


def behind(field: str, place: tuple[Any, Any], descending: bool, *, nullable: bool = False) -> Q:
    """Return a filter for the rows after a position in the order of a field and the primary key.

    Args:
        place: Values of both.
        nullable: Whether the field may be null: such rows come where the database sorts them, so
            that it can use its index.
    """
    value, number = place
    beyond = "lt" if descending else "gt"
    nulls_first = (connection.vendor == "postgresql") is descending
    if value is None:
        after = Q(**{f"{field}__isnull": True, f"pk__{beyond}": number})
        return after | Q(**{f"{field}__isnull": False}) if nulls_first else after
    after = Q(**{f"{field}__{beyond}": value}) | Q(**{field: value, f"pk__{beyond}": number})
    return after | Q(**{f"{field}__isnull": True}) if nullable and not nulls_first else after


def encode(order: str | None, values: Sequence[Any]) -> str:
    """Return a cursor for what follows these values."""
    return paging.pack([order, *map(_plain, values)])


def decode(cursor: str, order: str | None, count: int) -> list[Any]:
    """Return the values in a cursor.

    Raises:
        Invalid: The cursor is not valid, or of a list in another order.
    """
    if len(cursor) > paging.MAX_CURSOR_CHARS:
        raise bad_cursor()
    try:
        made_for, *values = paging.unpack(cursor)
    except ValueError:
        raise bad_cursor() from None
    if made_for != order:
        raise Invalid(fields={"cursor": "belongs to a list in another order"})
    if len(values) != count or not all(each is None or isinstance(each, Scalar) for each in values):
        raise bad_cursor()
    return values


def bad_cursor() -> Invalid:
    """Return the error for an invalid cursor."""
    return Invalid(fields={"cursor": "is not a cursor of this list"})


def _plain(value: Any) -> Scalar | None:
    """Return a value in a form for JSON, from which the field restores it (`to_python`)."""
    if value is None or isinstance(value, Scalar):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _value(field: Any, value: Scalar | None) -> Any:
    try:
        parsed = field.to_python(value)
    except (ValidationError, ValueError, OverflowError, TypeError):
        raise bad_cursor() from None
    match parsed:
        case str():
            good = storable.is_text(parsed)
        case int():
            good = abs(parsed) <= storable.MAX_ID
        case datetime():
            good = timezone.is_aware(parsed) and storable.is_within_reach(parsed)
        case _:
            good = parsed is not None
    if not good:
        raise bad_cursor()
    return parsed
