"""Tests of integers of variable length: the table of the sheet, and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.mux import varint

MINIMAL = {
    0: "00",
    37: "25",
    63: "3f",
    64: "4040",
    15293: "7bbd",
    16383: "7fff",
    16384: "80004000",
    494878333: "9d7f3e7d",
    1073741823: "bfffffff",
    1 << 30: "c000000040000000",
    151288809941952652: "c2197c5eff14e88c",
    (1 << 62) - 1: "ffffffffffffffff",
}


@pytest.mark.parametrize(("value", "text"), MINIMAL.items())
def test_the_shortest_form(value: int, text: str) -> None:
    assert varint.encode(value).hex() == text
    assert varint.decode(bytes.fromhex(text)) == (value, len(text) // 2)


@pytest.mark.parametrize("text", ["4000", "80000000", "c000000000000000"])
def test_a_longer_form_is_read(text: str) -> None:
    assert varint.decode(bytes.fromhex(text)) == (0, len(text) // 2)


@pytest.mark.parametrize("value", [-1, 1 << 62])
def test_what_has_no_encoding(value: int) -> None:
    with pytest.raises(ValueError, match="not between 0 and 2"):
        varint.encode(value)


@pytest.mark.parametrize("text", ["", "40", "800000", "c0000000000000"])
def test_one_that_is_cut_off(text: str) -> None:
    with pytest.raises(ValueError, match="the data ends"):
        varint.decode(bytes.fromhex(text))


@given(st.integers(0, varint.MAX_VARINT), st.binary(max_size=3), st.binary(max_size=3))
def test_reading_returns_what_was_written(value: int, before: bytes, behind: bytes) -> None:
    encoded = varint.encode(value)
    found = varint.decode(before + encoded + behind, len(before))
    assert found == (value, len(before) + len(encoded))
