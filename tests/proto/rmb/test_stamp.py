"""Tests of stamps and deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proto.rmb import stamp
from tests.proto.rmb.strategies import uint64

NOW = 1_000_000
times = st.integers(1, 2**40)


def test_a_timestamp_never_set_or_ahead_starts_now() -> None:
    assert stamp.stamp(NOW, 0, 60) == (NOW, 60)
    assert stamp.stamp(NOW, NOW + 1, 60) == (NOW, 60)
    assert stamp.stamp(NOW, NOW, 60) == (NOW, 60)


def test_time_gone_is_taken_off() -> None:
    assert stamp.stamp(NOW, NOW - 10, 60) == (NOW, 50)
    assert stamp.stamp(NOW, NOW - 60, 60) == (NOW, 0)
    assert stamp.stamp(NOW, NOW - 61, 60) == (NOW, 0)


@given(now=times, timestamp=times, expiration_s=times)
def test_the_deadline_never_moves(now: int, timestamp: int, expiration_s: int) -> None:
    stamped = stamp.stamp(now, timestamp, expiration_s)
    assert stamped[0] == now
    if timestamp <= now and stamp.ttl(now, timestamp, expiration_s) >= 0:
        assert stamp.deadline(*stamped) == stamp.deadline(timestamp, expiration_s)
    assert stamp.stamp(now, *stamped) == stamped


@given(now=uint64, timestamp=uint64, expiration_s=uint64)
def test_any_numbers_fit_the_wire(now: int, timestamp: int, expiration_s: int) -> None:
    assert all(0 <= number < 2**64 for number in stamp.stamp(now, timestamp, expiration_s))


def test_expired_from_the_deadline_on() -> None:
    assert stamp.deadline(NOW, 60) == NOW + 60
    assert stamp.ttl(NOW + 59, NOW, 60) == 1
    assert stamp.ttl(NOW + 60, NOW, 60) == 0
    assert stamp.ttl(NOW + 61, NOW, 60) == -1


def test_expirations_of_a_peer() -> None:
    assert stamp.request_expiration(0) == 300
    assert stamp.request_expiration(1) == 1
    assert stamp.request_expiration(1801) == 1800
    assert stamp.response_expiration() == 1800
