"""Tests of addresses as text and as protobuf."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.rmb import address
from proto.rmb.address import Address
from proto.rmb.errors import AddressError, BoundError, RmbError
from tests.proto.rmb.strategies import keys


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("7", (7, None)),
        ("7:", (7, "")),
        ("7:cli", (7, "cli")),
        ("7:a:b", (7, "a:b")),
        ("0", (0, None)),
        ("4294967295:é:ü 1", (4294967295, "é:ü 1")),
    ],
)
def test_text(text: str, key: address.SessionKey) -> None:
    assert address.parse(text) == key
    assert address.format(key) == str(Address(*key)) == text


@pytest.mark.parametrize(
    "text",
    ["", ":", ":7", "x", "-1", "+1", " 1", "1 ", "1.0", "\u0667", "4294967296", "1" * 5000, "7;"],
)
def test_text_that_is_no_address(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        address.parse(text)
    assert len(str(caught.value)) < 120


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(AddressError, match="Unicode"):
        address.parse("7:\ud800")


def test_connections_are_bounded_in_bytes() -> None:
    assert address.parse("7:" + "é" * 64) == (7, "é" * 64)
    with pytest.raises(BoundError, match="connection has 130 bytes, at most 128 are allowed"):
        address.parse("7:" + "é" * 65)
    assert address.parse("7:abc", max_connection_bytes=3) == (7, "abc")


@given(keys)
def test_round_trips(key: address.SessionKey) -> None:
    assert address.parse(address.format(key)) == key
    assert address.from_message(address.to_message(key)) == key


@given(keys, keys)
def test_different_sessions_have_different_texts(
    one: address.SessionKey, other: address.SessionKey
) -> None:
    assert (address.format(one) == address.format(other)) == (one == other)


@given(st.text(max_size=30))
def test_any_text(text: str) -> None:
    with suppress(RmbError):
        address.parse(text)
