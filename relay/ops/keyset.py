"""Pages of tables of the database, by cursor (of what is in memory: `relay.ops.paging`).

A cursor holds where the page before ended: the values that it is ordered by, and the id that makes
them unique. So a page costs the same wherever it is, nothing comes twice and nothing is passed over
while rows are added and removed; a total is not counted.
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
    """One page of a table.

    Args:
        rows: filtered already.
        orders: fields by the name they are known by.
        order: one of `orders`, or that with a minus.
        limit: items on the page.
        cursor: of the page before.
        nullable: the fields that may be null in these rows.

    Raises:
        Invalid: order or cursor are none.
        Away: the database does not answer.
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
    """Filter the rows behind a place in the order of a field and of the primary key.

    Args:
        place: values of both.
        nullable: whether the field may be null: such rows are where the database orders them,
            which its index can do.
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
    """A cursor for what comes after these values."""
    return paging.pack([order, *map(_plain, values)])


def decode(cursor: str, order: str | None, count: int) -> list[Any]:
    """The values in a cursor.

    Raises:
        Invalid: it is none of ours, or of a list in another order.
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
    """The refusal of a cursor that no list of ours gave."""
    return Invalid(fields={"cursor": "is not a cursor of this list"})


def _plain(value: Any) -> Scalar | None:
    """A value as JSON holds it; the field makes it again of that (`to_python`)."""
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
