"""Tests of offers, answers and records: round trips, and ids that tell files apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.files import messages, names, records
from proto.files.bounds import CHUNK_BYTES, MAX_SIZE_BYTES
from proto.files.errors import RefusedError
from proto.files.messages import Offer, State, Status
from proto.files.records import Record, Stage
from proto.rmb.address import Address

SHA = "ab" * 32
NAMES = st.text("aä日 .-_1", min_size=1, max_size=20).filter(lambda name: not _refused(name))
OFFERS = st.builds(
    Offer,
    st.integers(0, MAX_SIZE_BYTES),
    st.none() | NAMES,
    st.none() | st.text("0123456789abcdef", min_size=64, max_size=64),
    st.none() | st.sampled_from(["photos.new", "a"]),
    st.booleans(),
    st.none() | st.text("abc", max_size=8),
)


def _refused(name: str) -> bool:
    try:
        names.check_name(name)
    except RefusedError:
        return True
    return False


@given(OFFERS)
def test_offers_are_read_as_they_were_written(offer: Offer) -> None:
    assert messages.parse_offer(messages.encode_offer(offer)) == offer


@given(OFFERS, st.integers(1, 2**32 - 1), st.none() | st.text(max_size=5), st.sampled_from(Stage))
def test_records_are_read_as_they_were_written(
    offer: Offer, twin: int, connection: str | None, stage: Stage
) -> None:
    record = Record("id", Address(twin, connection), offer, stage, 12.5, (1, 2, 3), SHA)
    assert records.parse_record(records.encode_record(record)) == record
    without = record.at_stage(Stage.OPEN, 13.0, target=None)
    assert records.parse_record(records.encode_record(without)) == without


@given(
    st.integers(0, 20),
    st.sets(st.integers(21, 29), max_size=16),
    st.sampled_from(State),
    NAMES,
)
def test_statuses_are_read_as_they_were_written(
    have: int, beyond: set[int], state: State, name: str
) -> None:
    status = Status("id", state, have, tuple(sorted(beyond)), 16, name)
    assert messages.parse_status(messages.encode_status(status), 30) == status


@given(OFFERS)
def test_chunks_make_up_the_file(offer: Offer) -> None:
    last = offer.chunks - 1
    if offer.size_bytes == 0:
        assert offer.chunks == 0
        return
    assert 0 < offer.chunk_size(last) <= CHUNK_BYTES
    assert last * CHUNK_BYTES + offer.chunk_size(last) == offer.size_bytes
    assert last == 0 or offer.chunk_size(0) == CHUNK_BYTES


def test_an_id_is_that_of_the_same_file_only() -> None:
    offer = Offer(5, "a", SHA, nonce="1")
    assert offer.id("u") == Offer(5, "a", SHA, nonce="2").id("v")
    others = [
        Offer(6, "a", SHA),
        Offer(5, "b", SHA),
        Offer(5, "a", "cd" * 32),
        Offer(5, "a", SHA, cmd="c"),
        Offer(5, "a", SHA, replace=True),
    ]
    assert len({offer.id("u"), *(other.id("u") for other in others)}) == 6
    # Without a checksum or a name the file is not identified, so the id is that of the request.
    assert Offer(5, "a").id("u") == Offer(5, None, SHA).id("u") == "u"


def test_tags_of_chunks() -> None:
    assert messages.parse_chunk_tags(messages.chunk_tags("0" * 32, 7)) == ("0" * 32, 7)
    assert messages.parse_chunk_tags(None) is None and messages.parse_chunk_tags("") is None
    for tags in ("file=" + "0" * 32, "chunk=1", "file=,chunk=1", "fail-fast", "x" * 600):
        with pytest.raises(RefusedError, match="tags must be"):
            messages.parse_chunk_tags(tags)


def test_unknown_fields_are_left_to_later_versions() -> None:
    assert messages.parse_offer(b'{"size": 1, "colour": "red"}') == Offer(1)
