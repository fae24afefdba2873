"""Pages of lists that are live in Redis, for services.

A page ends with a cursor: a text that identifies where it ended. No item is repeated or skipped
because others before it were added or removed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from relay.access.errors import Invalid

Item = TypeVar("Item")

MAX_PAGE: Final = 1000
MAX_CURSOR_CHARS: Final = 4096


class Page(NamedTuple, Generic[Item]):
    """Some items of a list, and the cursor of the next page; empty if this is the last page."""

    items: list[Item]
    next: str


def bounded(limit: int) -> int:
    """Return `limit` if a page may have so many items.

    Raises:
        Invalid: It is less than one, or too large.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise Invalid(fields={"limit": f"must be between 1 and {MAX_PAGE}"})
    return limit


def one_of(order: str, names: tuple[str, ...]) -> tuple[str, bool]:
    """Return the name in an order, and whether it is preceded by a minus sign.

    Raises:
        Invalid: The list has no such order.
    """
    name, descending = order.removeprefix("-"), order.startswith("-")
    if name not in names:
        raise Invalid(fields={"order": f"must be one of {', '.join(names)}, or that with a minus"})
    return name, descending


def encode(order: str, *values: int | float | str) -> str:
    """Return the cursor for what follows these values in this order."""
    return pack([order, *values])


def decode(cursor: str, order: str, *kinds: type) -> tuple[Any, ...]:
    """Return the values in a cursor; none if it is empty.

    Args:
        cursor: Cursor that `encode` returned.
        order: Order of the list.
        kinds: Types of the values; a float may be written as an int.

    Raises:
        Invalid: It is not a cursor of this list.
    """
    if not cursor:
        return ()
    wrong = Invalid(fields={"cursor": "is not a cursor of this list"})
    if len(cursor) > MAX_CURSOR_CHARS:
        raise wrong
    try:
        document = unpack(cursor)
    except ValueError:
        raise wrong from None
    if len(document) != 1 + len(kinds) or document[0] != order:
        raise wrong
    values = document[1:]
    for value, kind in zip(values, kinds, strict=True):
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise wrong
    return tuple(values)


def page_of(
    items: Iterable[Item],
    place: Callable[[Item], tuple[float | str, str]],
    order: str,
    limit: int,
    cursor: str,
) -> Page[Item]:
    """Return a page of items that are all in memory.

    Args:
        place: Returns the value that an item is ordered by, and its unique name. The name breaks
            ties, from a to z in both directions.
        order: Order of the list; with a minus sign the highest value comes first.
        cursor: Cursor for this order, or empty.

    Raises:
        Invalid: It is not a cursor of this list.
    """
    found = sorted(items, key=lambda item: place(item)[1])
    descending = order.startswith("-")
    found.sort(key=lambda item: place(item)[0], reverse=descending)
    if cursor and found:
        kind = str if isinstance(place(found[0])[0], str) else float
        value, name = decode(cursor, order, kind, str)
        found = [
            item
            for item, (own, own_name) in ((item, place(item)) for item in found)
            if (own_name > name if own == value else (own < value) is descending)
        ]
    shown = found[: bounded(limit)]
    return Page(shown, encode(order, *place(shown[-1])) if len(found) > len(shown) else "")


def pack(values: Sequence[Any]) -> str:
    """Return the text of a cursor: JSON values, safe in a URL."""
    document = json.dumps(values, separators=(",", ":"))
    return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


def unpack(cursor: str) -> list[Any]:
    """Return the values in such a text.

    Raises:
        ValueError: The text is not a cursor.
    """
    padded = cursor.encode() + b"=" * (-len(cursor) % 4)
    try:
        document = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(document, list):
        raise ValueError("no list")
    return document
