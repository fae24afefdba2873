"""Tests of SCALE primitives: known forms, round trips, and only declared errors for bad input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.chain import scale
from proto.chain.bounds import MAX_COMPACT
from proto.chain.errors import BoundError, ChainFormatError, ScaleError
from proto.chain.scale import Reader

# The examples of Substrate's SCALE documentation, and the smallest and largest of each form.
COMPACTS = {
    0: "00",
    1: "04",
    42: "a8",
    63: "fc",
    64: "0101",
    69: "1501",
    16383: "fdff",
    16384: "02000100",
    65535: "feff0300",
    2**30 - 1: "feffffff",
    2**30: "0300000040",
    2**32 - 1: "03ffffffff",
    2**32: "070000000001",
    100_000_000_000_000: "0b00407a10f35a",
    MAX_COMPACT: "ff" + "ff" * 67,
}


@pytest.mark.parametrize(("value", "form"), COMPACTS.items())
def test_known_compacts(value: int, form: str) -> None:
    assert scale.compact("x", value).hex() == form
    assert Reader(bytes.fromhex(form)).compact("x") == value


@pytest.mark.parametrize(
    "form", ["0100", "fd00", "02000000", "feff0000", "0300000000", "070000004000"]
)
def test_a_compact_in_a_longer_form_is_refused(form: str) -> None:
    with pytest.raises(ScaleError, match="x: a compact number that is not in its shortest form"):
        Reader(bytes.fromhex(form)).compact("x")


def test_a_bound_is_checked_before_the_bytes_are_there() -> None:
    with pytest.raises(BoundError, match=r"relay has 1025 bytes, at most 1024 is allowed"):
        Reader(scale.compact("x", 1025)).blob("relay", 1024)
    with pytest.raises(BoundError, match=r"relay has 1025 bytes, at most 1024"):
        scale.blob("relay", bytes(1025), 1024)
    with pytest.raises(BoundError, match=r"^x is 5, at most 4"):
        Reader(b"\x14").compact("x", 4)
    with pytest.raises(BoundError, match=r"^x is about 2\^536, at most 4"):
        Reader(b"\xff" * 68).compact("x", 4)


def test_errors_name_the_field() -> None:
    with pytest.raises(ScaleError, match="pk: an option begins with 0 or 1, not 2"):
        Reader(b"\2").option("pk")
    with pytest.raises(ScaleError, match="id: 4 bytes expected, 3 left"):
        Reader(b"\0\0\0").u32("id")
    with pytest.raises(ScaleError, match="twin: 1 bytes after the end"):
        Reader(b"\0").finish("twin")
    with pytest.raises(ScaleError, match="account: 32 bytes expected, not 31"):
        scale.fixed("account", bytes(31), 32)
    with pytest.raises(ScaleError, match="id: -1 is not a 32-bit number"):
        scale.u32("id", -1)
    with pytest.raises(ScaleError, match="n: -1 is negative"):
        scale.compact("n", -1)
    with pytest.raises(BoundError):
        scale.compact("n", MAX_COMPACT + 1)


@given(st.integers(0, MAX_COMPACT))
def test_compacts_round_trip(value: int) -> None:
    reader = Reader(scale.compact("x", value))
    assert reader.compact("x") == value
    reader.finish("x")


@given(st.none() | st.binary(max_size=300), st.binary(max_size=4))
def test_optional_blobs_round_trip(value: bytes | None, behind: bytes) -> None:
    reader = Reader(scale.option_blob("x", value, 300) + behind)
    assert reader.option_blob("x", 300) == value
    assert reader.rest() == behind


@given(st.binary(max_size=80))
def test_random_bytes_give_a_value_with_one_form_or_the_declared_error(data: bytes) -> None:
    reader = Reader(data)
    try:
        value = reader.compact("x")
    except ChainFormatError:
        return
    assert scale.compact("x", value) == data[: reader.offset]
