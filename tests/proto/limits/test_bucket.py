"""Tests of token buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.limits.bucket import TokenBucket, TokenBuckets


def test_a_burst_then_the_rate() -> None:
    bucket = TokenBucket(rate_per_s=2, burst=3, now=100.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait_s(100.0) == 0.5
    assert not bucket.take(100.4)
    assert bucket.take(100.5)
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False], "never above burst"


def test_what_can_never_be_taken() -> None:
    bucket = TokenBucket(1, 3, 0.0)
    assert not bucket.take(0.0, 4)
    assert bucket.wait_s(0.0, 4) == float("inf")
    assert bucket.wait_s(0.0, 3) == 0


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(1, 1, 10.0)
    assert bucket.take(10.0)
    assert not bucket.take(9.0)
    assert not bucket.take(10.5)
    assert bucket.take(11.0)


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (1, 0), (-1, 1)])
def test_nonsense_is_refused(rate: float, burst: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        TokenBucket(rate, burst, 0.0)
    with pytest.raises(ValueError, match="above 0"):
        TokenBuckets[str](rate, burst)


@given(st.lists(st.floats(0, 2), max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_never_more_than_burst_and_rate(waits: list[float], rate: int, burst: int) -> None:
    bucket = TokenBucket(rate, burst, 0.0)
    now = 0.0
    taken = 0
    for wait in waits:
        now += wait
        taken += bucket.take(now)
        assert taken <= burst + rate * now + 1e-6
        if not bucket.take(now):
            assert 0 < bucket.wait_s(now) <= 1 / rate
        else:
            taken += 1


def test_each_key_has_its_own() -> None:
    buckets = TokenBuckets[str](1, 1)
    assert buckets.take("a", 0.0)
    assert buckets.take("b", 0.0)
    assert not buckets.take("a", 0.5)
    assert buckets.take("a", 1.0)


def test_keys_are_bounded() -> None:
    buckets = TokenBuckets[int](1, 1, max_keys=3)
    for key in (1, 2, 3):
        assert buckets.take(key, 0.0)
    assert not buckets.take(1, 0.0)  # used again, so 2 is now the oldest
    assert buckets.take(4, 0.0)
    assert len(buckets) == 3
    assert not buckets.take(1, 0.0)
    assert buckets.take(2, 0.0), "forgotten, so full again"
