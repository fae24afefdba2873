"""Tests of the records in System.Events: round trips, and only declared errors for bad input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.chain import events, scale, twin
from proto.chain.errors import BoundError, ChainFormatError, ScaleError
from proto.chain.twin import Twin
from tests.proto.chain import strategies

STORED, UPDATED = b"\x19\x0b", b"\x19\x0c"


@given(st.lists(st.tuples(strategies.twins, st.booleans()), max_size=4))
def test_records_round_trip(changes: list[tuple[Twin, bool]]) -> None:
    records = [
        events.encode_record(STORED if created else UPDATED, twin.encode(value), number)
        for number, (value, created) in enumerate(changes)
    ]
    value = events.encode_block(records)
    assert events.count(value) == len(changes)
    offset = 1
    for record, change in zip(records, changes, strict=True):
        assert events.read_twin_record(value, offset, STORED, UPDATED) == change
        offset += len(record)
    assert offset == len(value)


@pytest.mark.parametrize("phase", ["0000000000", "01", "02"])
def test_other_events_are_passed_over(phase: str) -> None:
    record = bytes.fromhex(phase) + b"\0\0"
    assert events.read_twin_record(record, 0, STORED, UPDATED) is None
    # A runtime that does not have these events has no numbers for them.
    assert events.read_twin_record(record, 0, None, None) is None


@given(st.binary(max_size=120), st.integers(0, 8))
def test_random_bytes_give_a_change_or_the_declared_error(data: bytes, offset: int) -> None:
    for value in (data, b"\2" + STORED + data):
        try:
            change = events.read_twin_record(value, min(offset, len(value)), STORED, UPDATED)
        except ChainFormatError:
            continue
        if change is not None:
            assert twin.encode(change.twin) in value


@given(st.binary(max_size=12))
def test_counts(data: bytes) -> None:
    try:
        assert events.count(data) <= len(data)
    except ChainFormatError:
        return


def test_problems_are_named() -> None:
    with pytest.raises(ScaleError, match=r"event\.phase: must be below 3, not 3"):
        events.read_twin_record(b"\3", 0, STORED, UPDATED)
    with pytest.raises(ScaleError, match="records do not fit"):
        events.count(scale.compact("x", 1000))
    with pytest.raises(BoundError, match="events"):
        events.encode_block([bytes(16 * 1024 * 1024)])
