"""Tests of counting the fields of an envelope."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.rmb import types_pb2 as pb
from proto.rmb.bounds import MAX_FIELDS, MAX_RELAYS
from proto.rmb.fields import has_many_fields
from tests.proto.rmb.strategies import envelopes

FIELDS = {
    "text": b"\x8a\x01\x00",
    "long text": b"\x0a\x80\x02" + bytes(256),
    "number": b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    "four bytes": b"\xa5\x06" + bytes(4),
    "eight bytes": b"\xa1\x06" + bytes(8),
}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_fields_of_every_kind_are_counted(field: bytes) -> None:
    assert not has_many_fields(field * MAX_FIELDS)
    assert has_many_fields(field * MAX_FIELDS + b"\x18\x01")


def test_what_is_in_groups_counts() -> None:
    assert has_many_fields(b"\xa3\x06" + FIELDS["number"] * MAX_FIELDS + b"\xa4\x06")


@given(envelopes())
def test_no_envelope_of_a_client_has_many(sent: pb.Envelope) -> None:
    del sent.relays[MAX_RELAYS:]
    assert not has_many_fields(sent.SerializeToString())


@given(st.binary(max_size=2000))
def test_any_bytes_are_counted(raw: bytes) -> None:
    if has_many_fields(raw):
        assert len(raw) > MAX_FIELDS
