"""Tests of back-off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.limits.backoff import Backoff


def _no_chance() -> float:
    return 0.0


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=0.1, longest_s=0.5)
    waits = [backoff.delay_s(failures, _no_chance) for failures in range(6)]
    assert waits == [0, 0.1, 0.2, 0.4, 0.5, 0.5]


def test_a_steady_wait() -> None:
    backoff = Backoff(first_s=2, longest_s=2, factor=1)
    assert backoff.delay_s(1, _no_chance) == backoff.delay_s(10**6, _no_chance) == 2


def test_any_number_of_failures() -> None:
    assert Backoff(first_s=1, longest_s=6).delay_s(10**9, _no_chance) == 6


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_jitter_only_adds(failures: int, chance: float) -> None:
    plain = Backoff(first_s=0.1, longest_s=5).delay_s(failures, _no_chance)
    jittered = Backoff(first_s=0.1, longest_s=5, jitter=0.5).delay_s(failures, lambda: chance)
    assert plain <= jittered <= plain * 1.5


@pytest.mark.parametrize(
    "values", [{"first_s": 0}, {"first_s": 7}, {"factor": 0.5}, {"jitter": -0.1}]
)
def test_nonsense_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Backoff(**{"first_s": 1.0, "longest_s": 6.0, **values})
