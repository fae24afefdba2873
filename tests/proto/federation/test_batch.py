"""Tests of the batch encoding: round trips, bounds, and bytes that are not a batch."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proto.federation import batch
from proto.federation.batch import Record
from proto.federation.errors import BatchBound, BatchError, BatchTruncated

ids = st.binary(min_size=1, max_size=batch.MAX_ID_BYTES)
records = st.builds(Record, ids, st.booleans(), st.binary(max_size=300))


@given(ids, st.lists(records, max_size=20))
def test_round_trip(relay_id: bytes, messages: list[Record]) -> None:
    assert batch.decode(batch.encode(relay_id, messages)) == (relay_id, messages)


def test_bytes_on_the_wire() -> None:
    body = batch.encode(b"ab", [Record(b"3-1-0", True, b"x" * 200), Record(b"3-2-0", False, b"")])
    assert body == b"\x02ab\x053-1-0\x01\xc8\x01" + b"x" * 200 + b"\x053-2-0\x00\x00"


@given(st.binary(max_size=200))
@example(b"")
@example(b"\x00")
@example(b"\x01a\x01b\x00\xff\xff\xff\xff\xff\x01")
def test_other_bytes_are_refused_with_a_reason_or_are_a_batch(body: bytes) -> None:
    try:
        relay_id, messages = batch.decode(body)
    except BatchError as error:
        assert str(error)
    else:
        assert 0 < len(relay_id) <= batch.MAX_ID_BYTES
        assert sum(len(message.envelope) for message in messages) <= len(body)


@given(ids, st.lists(records, min_size=1, max_size=5), st.data())
def test_a_cut_batch_never_makes_up_a_message(
    relay_id: bytes, messages: list[Record], data: st.DataObject
) -> None:
    body = batch.encode(relay_id, messages)
    cut = body[: data.draw(st.integers(0, len(body) - 1))]
    try:
        _, read = batch.decode(cut)
    except BatchTruncated:
        return
    assert read == messages[: len(read)] and len(read) < len(messages)


def test_bounds() -> None:
    with pytest.raises(BatchBound, match="messages of 513 is above 512"):
        batch.encode(b"r", [Record(b"1", False, b"")] * 513)
    with pytest.raises(BatchBound, match="delivery id of 65 is above 64"):
        batch.encode(b"r", [Record(b"1" * 65, False, b"")])
    with pytest.raises(BatchBound, match="relay id of 65"):
        batch.encode(b"r" * 65, [])
    with pytest.raises(BatchBound, match="bytes of"):
        batch.encode(b"r", [Record(b"1", False, bytes(batch.MAX_BODY_BYTES))])
    with pytest.raises(BatchBound, match="bytes of"):
        batch.decode(bytes(batch.MAX_BODY_BYTES + 1))
    with pytest.raises(BatchBound, match="messages of 513"):
        batch.decode(b"\x01r" + b"\x011\x00\x00" * 513)
    with pytest.raises(BatchError, match="delivery id is empty"):
        batch.decode(b"\x01r\x00")


def test_the_overhead_of_a_record_is_its_bound() -> None:
    empty = len(batch.encode(b"r", []))
    size = 1 << 21
    body = batch.encode(b"r", [Record(b"i" * batch.MAX_ID_BYTES, True, bytes(size))])
    assert len(body) - empty - size <= batch.RECORD_OVERHEAD_BYTES


@given(st.lists(st.integers(0, 65_535), max_size=batch.MAX_MESSAGES))
def test_answers_round_trip(statuses: list[int]) -> None:
    body = batch.encode_answer(statuses)
    assert batch.decode_answer(body, len(statuses)) == tuple(statuses)
    with pytest.raises(BatchError, match="bytes for"):
        batch.decode_answer(body + b"\x00", len(statuses))


@pytest.mark.parametrize(
    ("retry", "value"), [(False, "0f/7-1700000000000-0"), (True, "0f/7-1700000000000-0;retry")]
)
def test_the_delivery_header_names_relay_and_delivery(retry: bool, value: str) -> None:
    assert batch.delivery_header("0f", "7-1700000000000-0", retry) == value
