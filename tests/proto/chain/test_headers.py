"""Tests of headers and hexadecimal text: round trips, bounds, and only declared errors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.chain import headers
from proto.chain.errors import BoundError, ChainFormatError, HeaderError
from proto.chain.headers import Header
from tests.proto.chain import strategies

GOOD = Header(bytes(32), 300, bytes(32), bytes(32), (b"\x06aura\0",)).to_json()

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@given(strategies.headers)
def test_headers_round_trip(header: Header) -> None:
    assert headers.from_json(header.to_json()) == header
    assert len(header.hash()) == 32


@given(st.sampled_from(sorted(GOOD)), json_values)
def test_a_damaged_header_is_a_header_or_the_declared_error(name: str, value: Any) -> None:
    for damaged in (GOOD | {name: value}, value):
        try:
            header = headers.from_json(damaged)
        except HeaderError:
            continue
        assert header.encode()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"number": "12"}, "number is not a hexadecimal number"),
        ({"number": "0x100000000"}, "number is above"),
        ({"parentHash": "0x00"}, "parentHash has 1 bytes instead of 32"),
        ({"stateRoot": "0x" + "0g" * 32}, "stateRoot: not pairs of hexadecimal digits"),
        ({"extrinsicsRoot": "0x" + "00" * 33}, "extrinsicsRoot has 33 bytes, at most 32"),
        ({"extrinsicsRoot": "0x" + "0" * 65}, "extrinsicsRoot has 33 bytes, at most 32"),
        ({"digest": {"logs": ["0x"] * 257}}, "at most 256"),
        ({"digest": None}, "digest.logs is not a list"),
    ],
)
def test_problems_are_named(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(HeaderError, match=problem):
        headers.from_json(GOOD | change)


def test_encoding_has_bounds() -> None:
    with pytest.raises(BoundError, match=r"header\.number"):
        Header(bytes(32), 2**32, bytes(32), bytes(32)).encode()
    with pytest.raises(BoundError, match=r"header\.digest\.logs"):
        Header(bytes(32), 1, bytes(32), bytes(32), (b"",) * 257).encode()
    with pytest.raises(ChainFormatError, match=r"header\.parentHash"):
        Header(bytes(31), 1, bytes(32), bytes(32)).hash()


@given(st.binary(max_size=40))
def test_hexadecimal_text_round_trips(value: bytes) -> None:
    assert headers.from_hex("x", headers.to_hex(value), 40) == value


@given(json_values | st.text("0x123abcdefg ").map("0x".__add__))
def test_other_text_gives_the_declared_error(value: Any) -> None:
    try:
        raw = headers.from_hex("x", value, 6)
    except ChainFormatError:
        return
    assert headers.to_hex(raw) == value.lower()
