"""Pages of lists, as REST answers them (see `relay.ops.keyset`)."""

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
    """One page of a table.

    Args:
        query: of the request; its `order` is one of `orders`, or that with a minus.
        rows: filtered already.
        orders: fields by the name clients know them by.
        show: turns the rows of the page into what is answered, all at once.
        nullable: the fields that may be null.
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
    """One page of what is in memory, such as what Redis told.

    Args:
        query: as in `page`.
        items: filtered already.
        orders: what to order by, by the name clients know it by.
        identity: unique for each item.
        show: turns the items of the page into what is answered.
    """
    with _told():
        asked = _asked(query)
        key = orders[paging.one_of(asked["order"], tuple(orders))[0]]
        found = paging.page_of(items, lambda item: (key(item), identity(item)), **asked)
    return {"items": list(show(found.items)), "next": found.next or None}


def listed(found: ServicePage[Item], show: Callable[[Item], Any]) -> dict[str, Any]:
    """A page that a service made, with a cursor of its own."""
    return {"items": [show(each) for each in found.items], "next": found.next or None}


encode = keyset.encode


def decode(cursor: str, order: str | None, count: int) -> Sequence[Any]:
    """The values in a cursor.

    Raises:
        Refusal: it is none of ours, or of a list in another order.
    """
    with _told():
        return keyset.decode(cursor, order, count)


def bad_cursor() -> Refusal:
    """The refusal of a cursor that no list of ours gave."""
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
