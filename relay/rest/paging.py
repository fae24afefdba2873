"""Pages of lists in REST answers (see `relay.ops.keyset`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db.models import Model, QuerySet

from relay.access.errors import Invalid
from relay.ops import keyset, paging
from relay.ops.paging import Page as ServicePage
from relay.rest.problem import Refusal, refuse_field
from relay.rest.schema import PageQuery

Item = TypeVar("Item")
Row = TypeVar("Row", bound=Model)


def page(
    query: PageQuery,
    rows: QuerySet[Row],
    orders: Mapping[str, str],
    *,
    show: Callable[[list[Row]], Iterable[Any]] = lambda found: found,
    nullable: Collection[str] = (),
) -> dict[str, Any]:
    """Return one page of a table.

    Args:
        query: query of the request; its `order` is one of `orders`, optionally with a minus.
        rows: rows after all filters.
        orders: fields of the table, by the names that clients use.
        show: function that turns all rows of the page into items of the answer.
        nullable: fields that may be null.
    """
    with _told():
        found = keyset.page(rows, orders, nullable=nullable, **_asked(query))
    return {"items": list(show(found.items)), "next": found.next or None}


def page_list(
    query: PageQuery,
    items: Iterable[Item],
    orders: Mapping[str, Callable[[Item], float | str]],
    identity: Callable[[Item], str],
    *,
    show: Callable[[list[Item]], Iterable[Any]] = lambda found: found,
) -> dict[str, Any]:
    """Return one page of items in memory, such as those read from Redis.

    Args:
        query: as in `page`.
        items: items after all filters.
        orders: sort keys, by the names that clients use.
        identity: function that returns a unique id of an item.
        show: function that turns all items of the page into items of the answer.
    """
    with _told():
        asked = _asked(query)
        key = orders[paging.one_of(asked["order"], tuple(orders))[0]]
        found = paging.page_of(items, lambda item: (key(item), identity(item)), **asked)
    return {"items": list(show(found.items)), "next": found.next or None}


def listed(found: ServicePage[Item], show: Callable[[Item], Any]) -> dict[str, Any]:
    """Return a page that a service made, with the service's cursor."""
    return {"items": [show(each) for each in found.items], "next": found.next or None}


encode = keyset.encode


def decode(cursor: str, order: str | None, count: int) -> Sequence[Any]:
    """Return the values in a cursor.

    Raises:
        Refusal: it is invalid, or from a list in another order.
    """
    with _told():
        return keyset.decode(cursor, order, count)


def bad_cursor() -> Refusal:
    """Return the refusal of an invalid cursor."""
    return _refused(keyset.bad_cursor())


def _asked(query: PageQuery) -> dict[str, Any]:
    if query.cursor == "":
        raise keyset.bad_cursor()
    return {"order": query.order or "", "limit": query.limit, "cursor": query.cursor or ""}


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except Invalid as error:
        raise _refused(error) from None


def _refused(error: Invalid) -> Refusal:
    ((field, text),) = error.fields.items()
    return refuse_field(f"query.{field}", text, 400)
