"""Pages of tables of the database, by cursor (of what is in memory: `relay.ops.paging`).

A cursor holds where the page before ended: the values that it is ordered by, and the id that makes
them unique. So a page costs the same wherever it is, nothing comes twice and nothing is passed over
while rows are added and removed; a total is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import InterfaceError, OperationalError
from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from relay.access.errors import Away, Invalid
from relay.ops import paging, storable
from relay.ops.paging import Page

Row = TypeVar("Row", bound=Model)

Scalar = str | int | float | bool


def page(
    rows: QuerySet[Row], orders: Mapping[str, str], *, order: str, limit: int, cursor: str = ""
) -> Page[Row]:
    """One page of a table.

    Args:
        rows: filtered already.
        orders: fields by the name they are known by; none of them may be null in these rows.
        order: one of `orders`, or that with a minus.
        limit: items on the page.
        cursor: of the page before.

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
            _value(rows.model._meta.get_field(each), value)
            for each, value in zip(fields, decode(cursor, order, len(fields)), strict=True)
        ]
        beyond = "lt" if descending else "gt"
        after = Q(**{f"pk__{beyond}": places[-1]})
        if field != primary:
            after = Q(**{f"{field}__{beyond}": places[0]}) | (Q(**{field: places[0]}) & after)
        ordered = ordered.filter(after)
    try:
        found = list(ordered[: limit + 1])
    except (OperationalError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error
    if len(found) <= limit:
        return Page(found, "")
    found = found[:limit]
    return Page(found, encode(order, [getattr(found[-1], each) for each in fields]))


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
    if len(values) != count or not all(type(each) in (str, int, float, bool) for each in values):
        raise bad_cursor()
    return values


def bad_cursor() -> Invalid:
    """The refusal of a cursor that no list of ours gave."""
    return Invalid(fields={"cursor": "is not a cursor of this list"})


def _plain(value: Any) -> Scalar:
    """A value as JSON holds it; the field makes it again of that (`to_python`)."""
    if isinstance(value, Scalar):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _value(field: Any, value: Scalar) -> Any:
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
