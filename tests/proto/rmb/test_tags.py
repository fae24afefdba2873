"""Tests of tags."""

from __future__ import annotations

import pytest

from proto.rmb import tags


@pytest.mark.parametrize(
    "text",
    ["fail-fast", "a,fail-fast", "fail-fast b", "a\tfail-fast\nb", " fail-fast ", ",,fail-fast"],
)
def test_fail_fast(text: str) -> None:
    assert tags.has_fail_fast(text)


@pytest.mark.parametrize(
    "text", ["", "Fail-Fast", "fail-faster", "no-fail-fast", "fail fast", "a;fail-fast"]
)
def test_not_fail_fast(text: str) -> None:
    assert not tags.has_fail_fast(text)


def test_tokens() -> None:
    assert tags.split("a, b\tc,,d ") == ["a", "b", "c", "d"]
    assert tags.split(" , ") == []
