"""Tests of batches of events that lattice processes send to the lake."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.lattice.errors import FormatError
from proto.lattice.recording import (
    MAX_OTHERS,
    MAX_ROWS,
    MAX_SHAPES,
    MAX_TEXT_CHARS,
    ROW,
    Batch,
    EventKind,
    Shape,
    decode_batch,
    uid_of,
)

SHAPE = Shape(EventKind.SEEN, "M", "V", "default", "a:b", "A.B", "N", "replay")


def sent(batch: Batch) -> Mapping[bytes, bytes]:
    """Return the fields as Redis returns them."""
    fields = batch.encode().items()
    return {
        name.encode(): value if isinstance(value, bytes) else str(value).encode()
        for name, value in fields
    }


@given(
    st.lists(st.builds(Shape, *[st.text(max_size=9)] * len(Shape._fields)), max_size=3),
    st.integers(0, 3),
    st.integers(0, 10**18 - 1),
)
def test_batches_survive_redis(shapes: list[Shape], rows: int, lost: int) -> None:
    batch = Batch(shapes, bytes(rows * ROW.size), lost)
    assert decode_batch(sent(batch)) == batch


@given(
    st.dictionaries(st.sampled_from([b"shapes", b"rows", b"lost"]), st.binary(max_size=50)),
)
def test_anything_is_a_batch_or_malformed(fields: dict[bytes, bytes]) -> None:
    with contextlib.suppress(FormatError):
        decode_batch(fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", bytes(ROW.size - 1)),
        ("rows", bytes((MAX_ROWS + 1) * ROW.size)),
        ("shapes", b"{}"),
        ("shapes", b'[["a"]]'),
        ("shapes", json.dumps([[1] * 8]).encode()),
        ("shapes", json.dumps([SHAPE] * (MAX_SHAPES + MAX_OTHERS + 1)).encode()),
        ("lost", b"-1"),
        ("lost", b"9" * 19),
    ],
)
def test_malformed_batches(field: str, value: bytes) -> None:
    with pytest.raises(FormatError) as caught:
        decode_batch({**sent(Batch([SHAPE], bytes(ROW.size))), field.encode(): value})
    assert caught.value.field == field


def test_long_texts_are_cut() -> None:
    long = Shape(*["x" * 1_000] * len(Shape._fields))
    (found,) = decode_batch(sent(Batch([long], b""))).shapes
    assert {*map(len, found)} == {MAX_TEXT_CHARS}


def test_ids_become_numbers() -> None:
    assert uid_of("") == 0 and uid_of("\ud800") != 0
    assert uid_of("a") == uid_of("a") != uid_of("b")
