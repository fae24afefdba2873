"""Pages of lists, by cursor.

A cursor holds where the page before ended: the values that it is ordered by, and the id that makes
them unique. So a page costs the same wherever it is, nothing comes twice and nothing is passed over
while rows are added and removed; a total is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from relay.ops.paging import Page as ServicePage
from relay.ops.paging import pack, unpack
from relay.rest.bounds import MAX_ID
from relay.rest.problem import Refusal, refuse_field
from relay.rest.schema import PageQuery

Item = TypeVar("Item")
Row = TypeVar("Row", bound=Model)

Scalar = str | int | float | bool


def page(
    query: PageQuery,
    rows: QuerySet[Row],
    orders: Mapping[str, str],
    *,
    show: Callable[[list[Row]], Iterable[Any]] = lambda found: found,
) -> dict[str, Any]:
    """One page of a table.

    Args:
        query: of the request; its `order` is one of `orders`, or that with a minus.
        rows: filtered already.
        orders: fields by the name clients know them by; none of them may be null.
        show: turns the rows of the page into what is answered, all at once.
    """
    name, descending = _order(query)
    field = orders[name]
    primary = rows.model._meta.pk.name
    by_key = field in ("pk", primary)
    sign = "-" if descending else ""
    ordered = rows.order_by(f"{sign}pk") if by_key else rows.order_by(f"{sign}{field}", f"{sign}pk")
    if query.cursor is not None:
        values = decode(query.cursor, query.order, 1 if by_key else 2)
        model_fields = [primary] if by_key else [field, primary]
        parsed = [
            _value(rows.model._meta.get_field(each), value)
            for each, value in zip(model_fields, values, strict=True)
        ]
        beyond = "lt" if descending else "gt"
        after = Q(**{f"pk__{beyond}": parsed[-1]})
        if not by_key:
            after = Q(**{f"{field}__{beyond}": parsed[0]}) | (Q(**{field: parsed[0]}) & after)
        ordered = ordered.filter(after)
    found = list(ordered[: query.limit + 1])
    more = len(found) > query.limit
    found = found[: query.limit]
    following = None
    if more:
        last = found[-1]
        values = [last.pk] if by_key else [getattr(last, field), last.pk]
        following = encode(query.order, values)
    return {"items": list(show(found)), "next": following}


def page_list(
    query: PageQuery,
    items: Iterable[Item],
    orders: Mapping[str, Callable[[Item], Scalar]],
    identity: Callable[[Item], Scalar],
    *,
    show: Callable[[list[Item]], Iterable[Any]] = lambda found: found,
) -> dict[str, Any]:
    """One page of what is in memory, such as what Redis told.

    Args:
        query: as in `page`.
        items: filtered already.
        orders: what to order by, by the name clients know it by.
        identity: unique for each item.
        show: turns the items of the page into what is answered.
    """
    name, descending = _order(query)
    key = orders[name]

    def place(item: Item) -> tuple[Any, Any]:
        return (key(item), identity(item))

    ordered = sorted(items, key=place, reverse=descending)
    if query.cursor is not None:
        after = tuple(decode(query.cursor, query.order, 2))
        try:
            ordered = [
                each
                for each in ordered
                if (place(each) < after if descending else place(each) > after)
            ]
        except TypeError:
            raise bad_cursor() from None
    found = ordered[: query.limit]
    following = None
    if len(ordered) > query.limit:
        following = encode(query.order, place(found[-1]))
    return {"items": list(show(found)), "next": following}


def listed(found: ServicePage[Item], show: Callable[[Item], Any]) -> dict[str, Any]:
    """A page that a service made, with a cursor of its own."""
    return {"items": [show(each) for each in found.items], "next": found.next or None}


def encode(order: str | None, values: Sequence[Any]) -> str:
    """A cursor for what comes after these values."""
    return pack([order, *map(_plain, values)])


def decode(cursor: str, order: str | None, count: int) -> list[Any]:
    """The values in a cursor.

    Raises:
        Refusal: it is none of ours, or of a list in another order.
    """
    try:
        made_for, *values = unpack(cursor)
    except ValueError:
        raise bad_cursor() from None
    if made_for != order:
        raise refuse_field("query.cursor", "belongs to a list in another order", 400)
    if len(values) != count or not all(type(each) in (str, int, float, bool) for each in values):
        raise bad_cursor()
    return values


def _order(query: PageQuery) -> tuple[str, bool]:
    order = query.order or ""
    return order.removeprefix("-"), order.startswith("-")


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
    if parsed is None or (isinstance(parsed, int) and abs(parsed) > MAX_ID):
        raise bad_cursor()
    if isinstance(parsed, str) and "\x00" in parsed:
        raise bad_cursor()
    return parsed


def bad_cursor() -> Refusal:
    """The refusal of a cursor that no list of ours gave."""
    return refuse_field("query.cursor", "is not a cursor of this list", 400)
