"""Tests of `proto.limits.shares`: how room is shared."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from proto.limits.shares import Shares


def filled(shares: Shares[str], who: str) -> int:
    """Take as much as possible for one user, and return the amount taken."""
    taken = 0
    while shares.take(who):
        taken += 1
    return taken


def test_whoever_comes_later_finds_room() -> None:
    shares: Shares[str] = Shares(1200)
    assert [filled(shares, who) for who in "abc"] == [600, 300, 150]
    for _ in range(300):
        shares.give("a")
    # "a" now holds 300, and 450 are free.
    assert filled(shares, "a") == 75
    assert filled(shares, "d") == 188


def test_what_is_given_back_can_be_taken() -> None:
    shares: Shares[str] = Shares(10)
    for _ in range(filled(shares, "a")):
        shares.give("a")
    assert shares.free == 10
    assert filled(shares, "b") == 5


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())), st.integers(0, 20))
def test_no_more_is_taken_than_there_is(steps: list[tuple[str, bool]], total: int) -> None:
    shares: Shares[str] = Shares(total)
    taken: Counter[str] = Counter()
    for who, takes in steps:
        if takes:
            free = shares.free
            assert shares.take(who) == (taken[who] < free)
            taken[who] += taken[who] < free
        elif taken[who]:
            shares.give(who)
            taken[who] -= 1
        assert shares.free == total - taken.total() >= 0
