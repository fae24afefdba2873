"""The types of which bodies and queries consist."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from relay.rest.schema import Day, Stamp

STAMP: TypeAdapter[datetime] = TypeAdapter(Stamp)
DAY: TypeAdapter[date] = TypeAdapter(Day)


@pytest.mark.parametrize("adapter", [STAMP, DAY])
@pytest.mark.parametrize("value", ["0", "0.5", "-1", "1767225600", 0, 0.5, 1767225600, True, None])
def test_numbers_are_no_times(adapter: TypeAdapter[Any], value: Any) -> None:
    """Numbers are refused: they would count as seconds, or as milliseconds if large."""
    with pytest.raises(ValidationError, match="must be a day"):
        adapter.validate_python(value)


@given(st.integers() | st.floats() | st.decimals())
def test_no_number_is_one(value: Any) -> None:
    for adapter in (STAMP, DAY):
        for each in (value, str(value)):
            with pytest.raises(ValidationError):
                adapter.validate_python(each)


def test_texts_are_times() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    for text in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31 12:00Z"):
        assert STAMP.validate_python(text) == noon
    assert STAMP.validate_json('"2026-01-31T12:00:00Z"') == noon
    assert DAY.validate_python("2026-01-31") == noon.date()


@pytest.mark.parametrize("text", ["2026-01-31", "2026-01-31T12:00:00", "2026-13-31T12:00:00Z"])
def test_a_stamp_has_a_time_and_its_offset(text: str) -> None:
    with pytest.raises(ValidationError):
        STAMP.validate_python(text)


def test_what_is_one_already_stays() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert STAMP.validate_python(noon) == noon
    assert DAY.validate_python(noon.date()) == noon.date()
