"""Tests of the fixed window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.limits.window import Excess, Limit, WindowCount, window_index

START = 60.0 * 29_920_307  # the first second of a window


def _admit(count: WindowCount, limit: Limit, *sizes: int, now: float = START) -> list[str]:
    verdicts = [count.admit(size, limit, now) for size in sizes]
    return [verdict.name if verdict else "ok" for verdict in verdicts]


def test_messages() -> None:
    assert _admit(WindowCount(), Limit(messages=2), 1, 1, 1, 1) == ["ok", "ok", "COUNT", "COUNT"]


def test_bytes() -> None:
    count = WindowCount()
    assert _admit(count, Limit(size_bytes=10), 4, 6, 1, 0) == ["ok", "ok", "SIZE", "SIZE"]
    assert (count.messages, count.size_bytes) == (4, 11), "a refused message counts too"


def test_a_message_larger_than_the_window_does_not_count() -> None:
    count = WindowCount()
    assert _admit(count, Limit(1, 10), 11, 11, 10, 1) == ["SIZE", "SIZE", "ok", "COUNT"]


def test_no_limit() -> None:
    assert _admit(WindowCount(), Limit(), *[10**9] * 100) == ["ok"] * 100


def test_a_window_begins_at_a_full_minute() -> None:
    count, limit = WindowCount(), Limit(messages=1)
    assert _admit(count, limit, 1, now=START + 59.9) == ["ok"]
    assert _admit(count, limit, 1, now=START + 59.99) == ["COUNT"]
    assert _admit(count, limit, 1, now=START + 60) == ["ok"]
    assert window_index(START + 59.99) + 1 == window_index(START + 60) == count.window
    # A clock that is set back also begins a new window, because the index changed.
    assert _admit(count, limit, 1, now=START) == ["ok"]


def test_what_other_workers_counted_counts_here() -> None:
    count, limit = WindowCount(), Limit(messages=10)
    _admit(count, limit, 5, 5)
    assert count.take() == (count.window, 2, 10)
    _admit(count, limit, 1)
    count.merge(count.window, 9, 100)  # 2 of them from this worker
    assert (count.messages, count.size_bytes) == (10, 101)
    assert _admit(count, limit, 1) == ["COUNT"]


def test_one_increment_at_a_time() -> None:
    count = WindowCount()
    assert count.take() is None, "nothing to report"
    _admit(count, Limit(), 1)
    assert count.take() == (count.window, 1, 1)
    _admit(count, Limit(), 2)
    assert count.take() is None, "the former is not answered"
    count.merge(count.window, 1, 1)
    assert count.take() == (count.window, 1, 2)
    assert count.take() is None
    count.settle(count.window)
    assert (count.messages, count.size_bytes) == (2, 3), "applied, though the reply was lost"
    assert count.take() is None


@pytest.mark.parametrize("answer", ["merge", "settle"])
def test_an_answer_for_a_past_window_is_void(answer: str) -> None:
    count = WindowCount()
    _admit(count, Limit(), 1)
    taken = count.take()
    assert taken is not None
    _admit(count, Limit(), 7, now=START + 60)
    second = count.take()
    assert second == (taken.window + 1, 1, 7), "the new window does not wait for the old answer"
    if answer == "merge":
        count.merge(taken.window, 1000, 1000)
    else:
        count.settle(taken.window)
    assert (count.messages, count.size_bytes) == (1, 7)
    _admit(count, Limit(), 1, now=START + 60)
    assert count.take() is None, "the increment of this window is still unanswered"


@given(st.lists(st.integers(0, 20), max_size=30), st.integers(0, 10), st.integers(0, 50))
def test_against_the_rule_as_written(sizes: list[int], messages: int, size_bytes: int) -> None:
    count, limit = WindowCount(), Limit(messages, size_bytes)
    counted = total = 0
    for size in sizes:
        expected = None
        if size_bytes and size > size_bytes:
            expected = Excess.SIZE
        else:
            counted, total = counted + 1, total + size
            if messages and counted > messages:
                expected = Excess.COUNT
            elif size_bytes and total > size_bytes:
                expected = Excess.SIZE
        assert count.admit(size, limit, START) is expected


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["admit", "take", "answer"]))))
def test_workers_agree_once_all_is_answered(steps: list[tuple[int, str]]) -> None:
    """Three workers and a shared counter count no message twice and forget none."""
    workers = [WindowCount() for _ in range(3)]
    shared = [0, 0]
    replies: list[tuple[int, int] | None] = [None] * 3
    admitted = 0

    def commit(number: int) -> None:
        increment = workers[number].take()
        if increment is not None:
            shared[0] += increment.messages
            shared[1] += increment.size_bytes
            replies[number] = (shared[0], shared[1])

    def answer(number: int) -> None:
        if (reply := replies[number]) is not None:
            workers[number].merge(workers[number].window, *reply)
            replies[number] = None

    for number, step in steps:
        if step == "admit":
            admitted += 1
            workers[number].admit(10, Limit(), START)
        elif step == "take":
            commit(number)
        else:
            answer(number)
        assert all(worker.messages <= admitted for worker in workers)
    for _ in range(2):
        for number in range(3):
            answer(number)
            commit(number)
            answer(number)
    assert shared == [admitted, admitted * 10]


@given(
    st.lists(st.integers(0, 30), max_size=4),
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.builds(Limit, st.integers(0, 6), st.integers(0, 60)),
)
def test_many_at_once_are_admitted_if_each_of_them_would_be(
    before: list[int], sizes: list[int], limit: Limit
) -> None:
    one_by_one, together = WindowCount(), WindowCount()
    _admit(one_by_one, limit, *before)
    _admit(together, limit, *before)
    verdicts = _admit(one_by_one, limit, *sizes)
    admitted = together.admit_all(len(sizes), sum(sizes), limit, START)
    assert admitted == (verdicts == ["ok"] * len(sizes))
    if not admitted:
        assert _admit(together, limit, *sizes) == verdicts, "nothing was counted before"
    assert (together.messages, together.size_bytes) == (one_by_one.messages, one_by_one.size_bytes)
    assert together.take() == one_by_one.take()


def test_what_is_taken_back_was_not_counted() -> None:
    count, limit = WindowCount(), Limit(messages=2, size_bytes=100)
    _admit(count, limit, 10, 20)
    increment = count.take()
    assert increment is not None and increment[1:] == (2, 30)
    count.uncount(20, count.window)
    count.merge(count.window, 2, 30)  # the shared count as this worker reported it
    assert (count.messages, count.size_bytes) == (1, 10)
    assert count.take() == (count.window, -1, -20)
    count.merge(count.window, 1, 10)
    assert _admit(count, limit, 90, 1) == ["ok", "COUNT"]


def test_nothing_is_taken_back_of_another_window() -> None:
    count, limit = WindowCount(), Limit(messages=1)
    _admit(count, limit, 1)
    former = count.window
    _admit(count, limit, 1, now=START + 60)
    count.uncount(1, former)
    assert (count.messages, count.size_bytes, count.new_messages) == (1, 1, 1)


def test_room_is_known_once_the_others_were_heard_of() -> None:
    count, limit = WindowCount(), Limit(messages=10, size_bytes=100)
    _admit(count, limit, 10)
    assert not count.is_roomy(1, 1, limit, START), "other workers may have counted more"
    count.take()
    count.merge(count.window, 3, 30)
    assert count.is_roomy(2, 20, limit, START)
    assert not count.is_roomy(3, 1, limit, START)
    assert not count.is_roomy(1, 21, limit, START)
    assert count.is_roomy(1000, 1000, Limit(), START)
    assert not count.is_roomy(1, 1, limit, START + 60), "of the next window nothing is known"
