"""CSV for spreadsheets: what strangers choose is no formula there."""

from __future__ import annotations

import csv

import pytest

from relay.ops import csv_text


@pytest.mark.parametrize("first", "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
def test_no_text_is_a_formula(first: str) -> None:
    """Also those of full width, which spreadsheets of East Asia take for the others."""
    text = f"{first}HYPERLINK(1)"
    line = csv_text.line([text, -1, "7=", None])
    assert next(csv.reader([line.replace(text, "text")])) == ["'text", "-1", "7=", ""]
