"""`relay.sessions.meters`: what a worker reports to the shared counter, and when."""

from __future__ import annotations

from typing import Any

from hiredis import ReplyError
from hypothesis import given
from hypothesis import strategies as st

from proto.limits.window import WINDOW_S, Limit
from proto.rmb.reasons import MessageReason
from relay.queues.batch import Batch
from relay.sessions.meters import COUNT_BITS, SHARE, MeterBook

NOW = 1_700_000_000.0
TWIN = 7


class SharedCounter:
    """The part of Redis that meters use: one counter, and a batch for each commit."""

    def __init__(self) -> None:
        self.value = 0
        self.increments = 0

    def commit(self, book: MeterBook) -> None:
        """Run one group commit of a worker, and answer it immediately."""
        log: Any = self
        self.filling = Batch()
        book.commit(log)
        for payload, handler in self.filling.extras:
            words = payload.split(b"\r\n")
            if words[2] == b"INCRBY":
                self.increments += 1
                self.value += int(words[6])
                handler(self.value)

    @property
    def messages(self) -> int:
        return self.value & ((1 << COUNT_BITS) - 1)


def test_the_first_message_is_reported_at_once_and_later_ones_by_parts() -> None:
    shared, book = SharedCounter(), MeterBook(Limit(messages=10 * SHARE))
    meter = book.acquire(TWIN)
    reported = []
    for _ in range(31):
        assert meter.count(100, NOW) is None
        shared.commit(book)
        reported.append(shared.messages)
    assert reported == [1] * 10 + [11] * 10 + [21] * 10 + [31]


def test_bytes_are_reported_by_parts_too() -> None:
    shared, book = SharedCounter(), MeterBook(Limit(size_bytes=1000 * SHARE))
    meter = book.acquire(TWIN)
    for _ in range(21):
        meter.count(100, NOW)
        shared.commit(book)
    assert shared.increments == 3


def test_every_second_all_is_reported() -> None:
    shared, book = SharedCounter(), MeterBook(Limit(messages=100 * SHARE))
    meter = book.acquire(TWIN)
    for _ in range(5):
        meter.count(1, NOW)
        shared.commit(book)
    book.report_all(NOW)
    shared.commit(book)
    assert shared.messages == 5
    book.report_all(NOW)
    shared.commit(book)
    assert shared.increments == 2, "there is nothing new"
    assert not book.due


def test_nothing_is_reported_before_the_former_report_was_answered() -> None:
    shared, book = SharedCounter(), MeterBook(Limit(messages=5))
    meter = book.acquire(TWIN)
    meter.count(1, NOW)
    log: Any = shared
    shared.filling = Batch()
    book.commit(log)
    unanswered = shared.filling.extras[0][1]
    meter.count(1, NOW)
    shared.commit(book)
    assert shared.increments == 0
    unanswered(1)
    shared.commit(book)
    assert shared.increments == 1


def test_who_comes_back_does_not_begin_anew() -> None:
    """A twin that signs in again keeps its count, even if no commit was answered meanwhile."""
    shared, book = SharedCounter(), MeterBook(Limit(messages=10))
    refused = 0
    for _ in range(4):
        meter = book.acquire(TWIN)
        refused += sum(meter.count(1, NOW) is not None for _ in range(5))
        book.release(meter)
        book.report_all(NOW)
    assert refused == 10
    shared.commit(book)
    assert shared.messages == 20
    book.report_all(NOW + WINDOW_S)
    assert not book._meters and not book._unused


def test_what_redis_refused_is_reported_again() -> None:
    shared, book = SharedCounter(), MeterBook(Limit(messages=5))
    meter = book.acquire(TWIN)
    meter.count(1, NOW)
    log: Any = shared
    shared.filling = Batch()
    book.commit(log)
    shared.filling.extras[0][1](ReplyError("OOM command not allowed"))
    meter.count(1, NOW)
    book.report_all(NOW)
    shared.commit(book)
    assert shared.messages == 2


def test_a_new_connection_hears_of_the_others_with_its_first_commit() -> None:
    shared, book = SharedCounter(), MeterBook(Limit(messages=2 * SHARE))
    for _ in range(2 * SHARE):
        meter = book.acquire(TWIN)
        assert meter.count(1, NOW) is None
        shared.commit(book)
        book.release(meter)
    meter = book.acquire(TWIN)
    meter.count(1, NOW)
    shared.commit(book)
    assert meter.count(1, NOW) is MessageReason.LIMIT_COUNT


@given(
    limit=st.integers(1, 1000),
    turns=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=300),
)
def test_each_further_worker_overruns_a_limit_by_one_part_and_one_commit(
    limit: int, turns: list[tuple[int, int]]
) -> None:
    shared, books = SharedCounter(), [MeterBook(Limit(messages=limit)) for _ in range(3)]
    meters = [book.acquire(TWIN) for book in books]
    admitted = 0
    largest = 0
    for worker, messages in turns:
        for _ in range(messages):
            admitted += meters[worker].count(1, NOW) is None
        shared.commit(books[worker])
        largest = max(largest, messages)
    assert admitted <= limit + 2 * (limit // SHARE + largest)


def test_what_is_taken_back_is_reported() -> None:
    shared, book = SharedCounter(), MeterBook(Limit(messages=10))
    meter = book.acquire(TWIN)
    for _ in range(3):
        assert meter.count(100, NOW) is None
    shared.commit(book)
    assert book.is_roomy(TWIN, 2, 200, NOW) and not book.is_roomy(TWIN, 3, 300, NOW)
    meter.uncount(100, int(NOW // WINDOW_S))
    book.report_all(NOW)
    shared.commit(book)
    assert shared.messages == meter.window.messages == 2
    assert book.is_roomy(TWIN, 3, 300, NOW)


def test_room_of_twins_that_nobody_knows() -> None:
    assert not MeterBook(Limit(messages=10)).is_roomy(TWIN, 1, 1, NOW)
    book = MeterBook(Limit())
    assert book.is_roomy(TWIN, 1, 1, NOW)
    assert book.acquire(TWIN).is_roomy(1000, 1000, NOW)
