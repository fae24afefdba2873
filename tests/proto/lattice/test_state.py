"""Tests of the names and JSON by which the processes of a lattice and the site exchange state."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.lattice import state
from proto.lattice.errors import FormatError
from proto.lattice.state import CallField, FindingRow, HostRow, LinkRow, Request

KINDS = [
    *(state.HostRow, state.ActorRow, state.ProviderRow, state.LinkRow, state.FindingRow),
    *(state.Request, state.Answer),
]
TEXTS = st.text(max_size=9)
TIMES = st.floats(allow_nan=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=4,
)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_values_have_defaults(kind: Any) -> None:
    assert state.decode(kind, "{}") == kind()
    assert state.decode(kind, state.encode(kind())) == kind()
    assert state.decode(kind, '{"of another version": 1}') == kind()


@given(
    st.builds(
        HostRow,
        id=TEXTS,
        labels=st.dictionaries(TEXTS, TEXTS),
        uptime_s=st.integers(),
        seen_at=TIMES,
    )
    | st.builds(LinkRow, actor_id=TEXTS, values=st.dictionaries(TEXTS, TEXTS))
    | st.builds(FindingRow, text=TEXTS, at=TIMES, size=st.integers())
)
def test_values_survive_json(row: Any) -> None:
    assert state.decode(type(row), state.encode(row).encode()) == row


@given(st.text(max_size=30) | JSON_VALUES.map(json.dumps))
def test_anything_is_a_value_or_malformed(text: str) -> None:
    with contextlib.suppress(FormatError):
        state.decode(Request, text)
    with contextlib.suppress(FormatError):
        assert list(state.decode_call_field(text)) == json.loads(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "HostRow: expected a JSON object"),
        ("{", "HostRow: invalid JSON"),
        ("[" * 100_000, "invalid JSON"),
        ('{"uptime_s": true}', "field 'uptime_s' is bool, expected int"),
        ('{"labels": []}', "field 'labels' is list, expected dict"),
        ('"' + "x" * (1 << 20), "limit: 1048576"),
    ],
)
def test_errors_name_the_field(text: str, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        state.decode(HostRow, text)


def test_whole_numbers_are_times_too() -> None:
    assert state.decode(HostRow, '{"seen_at": 1}').seen_at == 1


@given(st.builds(CallField))
def test_fields_of_counts(field: CallField) -> None:
    assert state.decode_call_field(field.encode()) == field


@pytest.mark.parametrize("text", ["{}", "[]", '["a", "b", "c", "d", 1]', "x"])
def test_other_fields_of_counts_are_refused(text: str) -> None:
    with pytest.raises(FormatError, match="CallField"):
        state.decode_call_field(text)


def test_names() -> None:
    assert state.process_key("bridge-1") == "relay:lattice:process:bridge-1"
    assert state.calls_key(29_000_000) == "relay:lattice:calls:29000000"
    assert state.answer_key("a") == "relay:lattice:answers:a"
    assert state.row_key("M", "b c") == '["M", "b c"]'
