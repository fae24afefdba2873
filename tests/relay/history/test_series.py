"""The declared series, and their values as bytes."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from proto.rmb.reasons import MessageReason
from relay.history.packing import pack, rolled_up, rounded, unpack
from relay.history.series import BY_KEY, BY_NUMBER, DROP_REASONS, SERIES, RollUp, roll_up

FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
VALUES = st.dictionaries(st.sampled_from(sorted(BY_KEY)), FLOATS)


def test_keys_and_numbers_are_given_once() -> None:
    assert len(BY_KEY) == len(BY_NUMBER) == len(SERIES)
    assert all(0 < each.number < 256 for each in SERIES)


def test_each_reason_has_a_series() -> None:
    assert sorted(DROP_REASONS) == sorted(MessageReason)


@given(VALUES)
def test_values_come_back_as_they_were_stored(values: dict[str, float]) -> None:
    stored = pack(values)
    assert len(stored) == 5 * len(values)
    assert unpack(stored) == {key: rounded(value) for key, value in values.items()}
    # Rounded values stay the same when they are packed again.
    assert pack(unpack(stored)) == stored


@given(VALUES, st.binary(max_size=4))
def test_what_another_release_stored_is_left_out(values: dict[str, float], more: bytes) -> None:
    stored = pack(values) + struct.pack("<Bf", 255, 1.0) + more
    assert unpack(stored) == {key: rounded(value) for key, value in values.items()}


def test_only_wanted_series_are_unpacked() -> None:
    stored = pack({"sessions": 3.0, "outbox": 4.0})
    assert unpack(stored, {"outbox", "queued"}) == {"outbox": 4.0}


def test_values_that_cannot_be_stored() -> None:
    stored = pack({"sessions": float("nan"), "outbox": float("inf"), "queued": -float("inf")})
    assert unpack(stored) == {"sessions": 0.0, "outbox": 3.4e38, "queued": -3.4e38}


@given(st.lists(VALUES, max_size=8))
def test_a_roll_up_keeps_gaps_and_bounds(points: list[dict[str, float]]) -> None:
    found = rolled_up(points)
    assert set(found) == {key for point in points for key in point}
    for key, value in found.items():
        there = [rounded(point[key]) for point in points if key in point]
        slack = 1e-5 * max(map(abs, there))
        assert min(there) - slack <= value <= max(there) + slack
        kind = BY_KEY[key].roll_up
        if kind is RollUp.MAX:
            assert value == max(there)
        elif kind is RollUp.LAST:
            assert value == there[-1]


def test_roll_ups() -> None:
    mean, most, last = (BY_KEY[key] for key in ("messages_in", "commit_p99", "redis_memory"))
    assert roll_up(mean, [1.0, 2.0, 6.0]) == 3.0
    assert roll_up(most, [1.0, 6.0, 2.0]) == 6.0
    assert roll_up(last, [1.0, 6.0, 2.0]) == 2.0
