"""Pages of what is in memory; those of tables are tested where REST and the console list them."""

from __future__ import annotations

import pytest

from relay.access.errors import Invalid
from relay.ops import keyset

ITEMS = [("b", 2), ("a", 2), ("c", 1), ("d", 3)]
ORDERS = {"size": lambda item: item[1]}


def pages(order: str, limit: int) -> list[list[str]]:
    found, cursor = [], ""
    while True:
        page = keyset.page_list(
            ITEMS, ORDERS, lambda item: item[0], order=order, limit=limit, cursor=cursor
        )
        found.append([name for name, _ in page.items])
        if not (cursor := page.next):
            return found


def test_pages_in_both_directions() -> None:
    assert pages("size", 3) == [["c", "a", "b"], ["d"]]
    assert pages("-size", 1) == [["d"], ["b"], ["a"], ["c"]]


@pytest.mark.parametrize("cursor", ["x", keyset.encode("-size", [1, "a"]), "x" * 5000,
                                    keyset.encode("size", ["text", "a"])])  # fmt: skip
def test_foreign_cursors_are_refused(cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        keyset.page_list(ITEMS, ORDERS, lambda item: item[0], order="size", limit=1, cursor=cursor)
