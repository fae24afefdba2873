"""Tests of twins and their storage keys: round trips, bounds, and only declared errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.chain import storage, twin
from proto.chain.errors import BoundError, ChainFormatError, ScaleError
from proto.chain.twin import Entity, Twin
from tests.proto.chain import strategies

PLAIN = Twin(1, bytes(32))


@given(strategies.twins)
def test_twins_round_trip(value: Twin) -> None:
    assert twin.decode(twin.encode(value)) == value


@given(strategies.twins, st.data())
def test_a_damaged_twin_is_another_twin_or_the_declared_error(
    value: Twin, data: st.DataObject
) -> None:
    raw = bytearray(twin.encode(value))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut])):
        try:
            read = twin.decode(damaged)
        except ChainFormatError:
            continue
        assert twin.encode(read) == damaged


@given(st.binary(max_size=200))
def test_random_bytes_are_a_twin_or_the_declared_error(data: bytes) -> None:
    try:
        read = twin.decode(data)
    except ChainFormatError:
        return
    assert twin.encode(read) == data


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (replace(PLAIN, relay=bytes(1025)), "twin.relay"),
        (replace(PLAIN, pk=bytes(129)), "twin.pk"),
        (replace(PLAIN, entities=(Entity(1, b""),) * 10_001), "twin.entities"),
        (replace(PLAIN, entities=(Entity(1, bytes(1025)),)), "twin.entities.signature"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bounds(value: Twin, field: str) -> None:
    with pytest.raises(BoundError) as caught:
        twin.encode(value)
    assert caught.value.field == field


def test_the_longest_fields_pass() -> None:
    value = replace(PLAIN, relay=bytes(1024), pk=bytes(128), entities=(Entity(1, bytes(1024)),))
    assert twin.decode(twin.encode(value)) == value


def test_something_behind_a_twin_is_refused() -> None:
    with pytest.raises(ScaleError, match="twin: 1 bytes after the end"):
        twin.decode(twin.encode(PLAIN) + b"\0")


@given(strategies.ids)
def test_a_key_gives_its_twin_back(value: int) -> None:
    assert storage.twin_of_key(storage.twin_key(value)) == value


@given(st.binary(max_size=60))
def test_other_keys_are_refused(key: bytes) -> None:
    with pytest.raises(ScaleError):
        storage.twin_of_key(storage.TWINS + key if len(key) != 20 else key)


def test_keys_want_ids_and_accounts() -> None:
    with pytest.raises(ScaleError, match="twin"):
        storage.twin_key(2**32)
    for key in (storage.twin_id_key, storage.terms_key, storage.account_key):
        with pytest.raises(ScaleError, match="account"):
            key(bytes(33))
