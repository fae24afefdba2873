"""`relay.audit.differences`: what changed between two JSON values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.audit.differences import differences, summary

NAMES = st.text(max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def shown(before: Any, after: Any) -> list[tuple[str, str, str]]:
    return [(each.field, each.before, each.after) for each in differences(before, after)]


@pytest.mark.parametrize(
    ("before", "after", "fields", "line"),
    [
        (None, None, [], ""),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, [("b", "2", "3"), ("a", "1", "1")], "b: 2 → 3"),
        (None, {"on": True}, [("on", "", "yes")], "on: yes"),
        ({"on": True}, None, [("on", "yes", "")], "on: no more yes"),
        ({"x": {"y": 1}}, {"x": {"y": 2}}, [("x.y", "1", "2")], "x.y: 1 → 2"),
        ({"x": {"y": 1}}, {"x": 4}, [("x", '{"y": 1}', "4")], 'x: {"y": 1} → 4'),
        (["a", "b"], ["b", "c"], [("", "a", "c")], "a → c"),
        ([{"a": 1}], [], [("", '[{"a": 1}]', "")], 'no more [{"a": 1}]'),
        ("old", "new", [("", "old", "new")], "old → new"),
    ],
)
def test_fields(before: Any, after: Any, fields: list[tuple[str, str, str]], line: str) -> None:
    assert shown(before, after) == fields
    assert summary(before, after) == line


def test_items_that_stayed_are_counted() -> None:
    (found,) = differences(["a", "b", "c"], ["a", "b"])
    assert (found.before, found.after, found.kept) == ("c", "", 2)


@given(JSON)
def test_what_is_the_same_shows_no_change(value: Any) -> None:
    assert summary(value, value) == ""


@given(JSON, JSON)
def test_any_two_values(before: Any, after: Any) -> None:
    for each in differences(before, after):
        assert isinstance(each.before, str) and isinstance(each.after, str)
