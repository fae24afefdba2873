"""Tests of the delivery rules, without a network: passes, stickiness, back-off and expiry."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.federation.delivery import (
    BACKOFF,
    LEAST_TRY_S,
    MAX_WAIT_S,
    PASS_PAUSES_S,
    PASS_S,
    Candidate,
    Choice,
    Outcome,
    Setbacks,
    choose,
    counts,
    deadline_s,
    judge,
    time_out_s,
)

RELAYS = ("a.example", "b.example", "c.example")
TRY_S = 3.0


@pytest.mark.parametrize(
    ("statuses", "retry_after", "outcome"),
    [
        ((202, 208), False, Outcome.ACCEPTED),
        ((400, 401, 403, 404, 405, 410, 413, 451), False, Outcome.REFUSED),
        ((400, 404), True, Outcome.REFUSED),
        ((408, 425, 429, 500, 502, 503, 504), False, Outcome.FAILED),
        ((429, 503), True, Outcome.BUSY),
        # Neither a success nor our fault: something other than a relay answers.
        ((100, 200, 204, 301, 302, 307), False, Outcome.FAILED),
    ],
)
def test_what_answers_mean(statuses: tuple[int, ...], retry_after: bool, outcome: Outcome) -> None:
    assert {judge(status, retry_after) for status in statuses} == {outcome}


@pytest.mark.parametrize(
    ("timestamp", "expiration_s", "deadline"),
    [
        (1000, 60, 1060),
        (990, 20, 1010),
        (1000, 0, 4600),  # no expiration: the retention applies
        (900, 100, 4600),  # expired on arrival: the sender's clock may be wrong
        (900, 99, 4600),
        (1000, 10_000, 4600),
        (0, 0, 4600),
        (2**63, 2**63, 4600),
    ],
)
def test_when_a_message_expires(timestamp: int, expiration_s: int, deadline: float) -> None:
    assert deadline_s(timestamp, expiration_s, 1000.0, 3600.0) == deadline


def test_the_pauses_after_failures_in_a_row() -> None:
    setbacks = Setbacks()
    now, waits = 1000.0, []
    for _ in range(9):
        assert setbacks.failed(now, now, lambda: 0.0)
        waits.append(round(setbacks.retry_at - now, 3))
        now = setbacks.retry_at
    assert waits == [*PASS_PAUSES_S, 3, 6, 12, 24, 48, 60, 60]
    setbacks.succeeded()
    assert (setbacks.failures, setbacks.retry_at) == (0, 0.0)


def test_tries_that_went_on_at_the_same_time_fail_once() -> None:
    setbacks = Setbacks()
    assert setbacks.failed(1000.0, 1003.0, lambda: 0.0)
    assert not any(setbacks.failed(1000.0 + n / 10, 1003.5, lambda: 0.0) for n in range(30))
    assert setbacks.failures == 1
    assert setbacks.failed(1003.6, 1004.0, lambda: 0.0)


def test_a_relay_may_ask_for_more_time() -> None:
    setbacks = Setbacks()
    setbacks.failed(10.0, 10.0, lambda: 0.0, wait_s=7.0)
    assert setbacks.retry_at == 17.0
    setbacks.failed(17.0, 17.0, lambda: 0.0, wait_s=10_000.0)
    assert setbacks.retry_at == 17.0 + BACKOFF.longest_s


def test_times_of_another_clock_are_not_believed() -> None:
    setbacks = Setbacks()
    setbacks.stored(3, 10_000_000.0, 1000.0)
    assert setbacks.retry_at == 1000.0 + MAX_WAIT_S
    setbacks.stored(0, 10_000_000.0, 1000.0)
    assert setbacks.retry_at == 0.0


def candidates(**retry_at: float) -> list[Candidate]:
    """Return the three relays as candidates; a keyword sets `retry_at` by a name's first letter."""
    return [Candidate(relay, retry_at.get(relay[0], 0.0)) for relay in RELAYS]


def test_the_relay_that_took_the_last_message_is_next() -> None:
    assert choose(candidates(), "b.example", 10.0) == Choice("b.example", 10.0)
    assert choose(candidates(), None, 10.0) == Choice("a.example", 10.0)
    assert choose(candidates(), "gone.example", 10.0) == Choice("a.example", 10.0)
    assert choose(candidates(b=11.0), "b.example", 10.0) == Choice("a.example", 10.0)


def test_one_that_failed_in_this_pass_comes_after_the_others() -> None:
    failed, untried = Candidate("a.example", 9.0, 1), Candidate("b.example")
    assert choose((failed, untried), None, 10.0).relay == "b.example"
    assert choose((failed, untried), "a.example", 10.0).relay == "b.example"
    assert choose((failed, untried._replace(retry_at=11.0)), None, 10.0).relay == "a.example"
    setbacks = Setbacks(5, 100.0)
    assert setbacks.weight(100.0) == 5
    assert setbacks.weight(100.0 + PASS_S) == 0


def test_without_a_relay_the_earliest_time_counts() -> None:
    away = candidates(a=15.0, b=12.0, c=float("inf"))
    assert choose(away, None, 10.0) == Choice(None, 12.0)
    assert choose((), None, 10.0) == Choice(None, float("inf"))


def test_a_try_is_not_longer_than_the_message_lives() -> None:
    assert time_out_s(3.0, 1000.0, 990.0) == 3.0
    assert time_out_s(3.0, 1000.0, 999.0) == 1.0
    assert time_out_s(3.0, 1000.0, 1001.0) == LEAST_TRY_S, "tries never follow without a pause"
    assert counts(1.5, 3.0) and not counts(1.4, 3.0)


def play(
    relays: tuple[str, ...],
    works: Callable[[str, float], bool],
    until: float,
    seed: int,
    took_s: float = 0.0,
) -> list[tuple[float, str, bool]]:
    """Try relays until one takes a message, and list (time, relay, success) of each attempt."""
    chance = random.Random(seed)
    setbacks = {relay: Setbacks() for relay in relays}
    now, tries = 0.0, []
    while now < until:
        ranked = [
            Candidate(relay, setbacks[relay].retry_at, setbacks[relay].weight(now))
            for relay in relays
        ]
        choice = choose(ranked, None, now)
        if choice.relay is None:
            now = choice.at
            continue
        success = works(choice.relay, now)
        tries.append((now, choice.relay, success))
        if success:
            break
        started, now = now, now + took_s
        setbacks[choice.relay].failed(started, now, chance.random)
    return tries


@given(st.integers(1, 4), st.integers(), st.floats(0, TRY_S))
def test_three_passes_over_all_relays_then_a_pause(count: int, seed: int, took_s: float) -> None:
    relays = tuple(f"{number}.example" for number in range(count))
    tries = play(relays, lambda relay, now: False, 3.0 + 40 * TRY_S, seed, took_s)
    assert {relay for _, relay, _ in tries[:count]} == set(relays)
    for relay in relays:
        times = [at for at, tried, _ in tries if tried == relay]
        pauses = [later - earlier - took_s for earlier, later in itertools.pairwise(times)]
        assert all(pause >= -1e-6 for pause in pauses)
        for pause, least in zip(pauses, (0.1, 0.2, 3.0, 6.0, 12.0), strict=False):
            assert pause >= least - 1e-6


@given(st.integers(1, 4), st.integers(0, 3), st.integers())
def test_a_relay_that_works_is_found_in_the_first_pass(count: int, good: int, seed: int) -> None:
    relays = tuple(f"{number}.example" for number in range(count))
    good %= count
    tries = play(relays, lambda relay, now: relay == relays[good], 60.0, seed)
    assert len(tries) <= count and tries[-1][1:] == (relays[good], True)
    assert tries[-1][0] == 0.0


@given(st.integers(), st.floats(0.5, 300))
def test_a_relay_that_comes_back_is_found_within_its_back_off(seed: int, back_at: float) -> None:
    tries = play(("a.example",), lambda relay, now: now >= back_at, 10_000.0, seed)
    assert tries[-1][2]
    assert tries[-1][0] - back_at <= MAX_WAIT_S


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 100)), max_size=50), st.integers())
def test_failures_in_a_row_only_grow_until_a_success(
    events: list[tuple[bool, float]], seed: int
) -> None:
    chance = random.Random(seed)
    setbacks, now = Setbacks(), 0.0
    for success, pause in events:
        now += pause
        before = setbacks.failures
        if success:
            setbacks.succeeded()
            assert setbacks.failures == 0 and setbacks.retry_at == 0
        elif setbacks.failed(now, now, chance.random):
            assert setbacks.failures == before + 1
            assert now < setbacks.retry_at <= now + MAX_WAIT_S
