"""Tests of JSON objects in chunks of any size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.rpc.errors import ErrorCode, RpcMessageError
from proto.rpc.framing import JsonReader

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)


@given(st.lists(OBJECTS, max_size=5), st.sampled_from(["", " ", "\n\t"]), st.data())
def test_any_split_gives_the_same(
    objects: list[dict[str, Any]], between: str, data: st.DataObject
) -> None:
    text = between.join(json.dumps(each, ensure_ascii=False) for each in objects).encode()
    reader, found = JsonReader(), []
    while text:
        size = data.draw(st.integers(1, len(text)))
        found += reader.receive(text[:size])
        text = text[size:]
    assert found == objects
    assert not reader.is_within


@given(st.binary(max_size=60))
def test_any_bytes_are_objects_or_an_error(data: bytes) -> None:
    try:
        assert all(isinstance(each, dict) for each in JsonReader().receive(data))
    except RpcMessageError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"nonsense", ErrorCode.PARSE, "not a JSON object"),
        (b"[1]", ErrorCode.PARSE, "not a JSON object"),
        (b'{"a": nonsense}', ErrorCode.PARSE, "not JSON"),
        (b'{"a": "\xff"}', ErrorCode.PARSE, "not JSON"),
        (b"{]", ErrorCode.PARSE, "not JSON|nested"),
        (b'{"a":' * 65, ErrorCode.PARSE, "nested deeper than 64"),
        (b'{"a": "' + b"x" * 200, ErrorCode.MESSAGE_TOO_LONG, "longer than 100 bytes"),
        (b'{"a": "' + b"x" * 200 + b'"}', ErrorCode.MESSAGE_TOO_LONG, "longer than 100 bytes"),
    ],
)
def test_what_is_refused(data: bytes, code: ErrorCode, words: str) -> None:
    with pytest.raises(RpcMessageError, match=words) as refused:
        list(JsonReader(max_bytes=2_000 if data.count(b"{") > 1 else 100).receive(data))
    assert refused.value.code is code


def test_a_long_value_in_small_chunks_is_looked_through_once() -> None:
    """A long value in small chunks is scanned only once; otherwise a megabyte would take hours."""
    reader = JsonReader()
    text = json.dumps({"a": "x\\" * 200_000}).encode()
    found = []
    for start in range(0, len(text), 7):
        found += reader.receive(text[start : start + 7])
    assert len(found) == 1


def test_the_first_value_and_what_follows_it() -> None:
    reader = JsonReader()
    assert reader.next_of(b' {"a":') is None
    assert reader.next_of(b'1}rest{"') == {"a": 1}
    assert reader.rest() == b'rest{"'
    assert not reader.is_within
