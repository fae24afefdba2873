"""CSV for spreadsheets: text from clients is never a formula."""

from __future__ import annotations

import csv

import pytest

from relay.ops import csv_text


@pytest.mark.parametrize("first", "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
def test_no_text_is_a_formula(first: str) -> None:
    """No text starts a formula, nor with full-width signs, which East Asian spreadsheets accept."""
    text = f"{first}HYPERLINK(1)"
    line = csv_text.line([text, -1, "7=", None])
    assert next(csv.reader([line.replace(text, "text")])) == ["'text", "-1", "7=", ""]
