"""The ring buffer between a worker and the process that packs its events."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from relay.analytics.ring import DATA_BYTES, MOST_BYTES, NUMBERS, Record, Ring, create


@pytest.fixture
def ends() -> Iterator[tuple[Ring, Ring]]:
    file = create()
    both = Ring(file), Ring(file)
    os.close(file)
    yield both
    for ring in both:
        ring.close()


def record(number: int, data: bytes) -> Record:
    return Record(number % 7, number, number + 1, -number, 2**62 + number, data)


HEAD_BYTES = 40
"""Size of a record's head including the padding at its end, in bytes."""


def put(ring: Ring, new: Record, spare_bytes: int = 0) -> bool:
    what, *numbers, data = new
    return ring.put(what, data, *numbers, spare_bytes)


def test_what_is_put_in_is_seen_after_two_publications(ends: tuple[Ring, Ring]) -> None:
    sender, taker = ends
    assert put(sender, record(1, b"one"))
    assert list(taker.take()) == []
    assert sender.publish()  # not all of it is shown yet
    assert list(taker.take()) == []
    assert not sender.publish()
    assert list(taker.take()) == [record(1, b"one")]
    assert list(taker.take()) == []


def test_a_record_counts_as_taken_when_it_is_handed_out(ends: tuple[Ring, Ring]) -> None:
    sender, taker = ends
    for number in range(3):
        put(sender, record(number, b"x" * number))
    sender.publish()
    sender.publish()
    assert next(taker.take()) == record(0, b"")
    # Another process continues where a killed one stopped.
    assert [each.messages for each in taker.take()] == [1, 2]


def test_nothing_is_put_in_where_there_is_no_room(ends: tuple[Ring, Ring]) -> None:
    sender, taker = ends
    assert not put(sender, record(0, bytes(MOST_BYTES + 1)))
    big = bytes(MOST_BYTES - 1024)
    assert [put(sender, record(number, big)) for number in range(5)] == [True] * 4 + [False]
    assert put(sender, record(4, b"small"))
    assert not put(sender, record(5, b"small"), spare_bytes=MOST_BYTES)
    sender.publish()
    sender.publish()
    assert [each.messages for each in taker.take()] == [0, 1, 2, 3, 4]
    assert put(sender, record(5, big), spare_bytes=MOST_BYTES)


def test_figures_are_told(ends: tuple[Ring, Ring]) -> None:
    sender, taker = ends
    figures = list(range(2**63, 2**63 + NUMBERS))
    taker.tell(figures)
    assert sender.told(NUMBERS) == figures
    assert sender.told(3) == figures[:3]


class TwoEnds(RuleBasedStateMachine):
    """Everything put in comes out once and in order, and never exceeds the room of the ring."""

    def __init__(self) -> None:
        super().__init__()
        file = create()
        self.sender, self.taker = Ring(file), Ring(file)
        os.close(file)
        self.inside: list[Record] = []
        self.hidden = self.fresh = 0  # not shown; of these, fresh since the last publication
        self.number = 0

    @rule(size=st.integers(0, MOST_BYTES), times=st.integers(1, 6))
    def put(self, size: int, times: int) -> None:
        for _ in range(times):
            self.number += 1
            new = record(self.number, bytes([self.number % 256]) * size)
            if put(self.sender, new):
                self.inside.append(new)
                self.hidden += 1
                self.fresh += 1
            else:
                # In the worst case: heads, and an unused end of the ring before a large record.
                used = sum(len(each.data) + HEAD_BYTES for each in (*self.inside, new))
                assert used + MOST_BYTES + HEAD_BYTES > DATA_BYTES

    @rule()
    def publish(self) -> None:
        assert self.sender.publish() == bool(self.fresh)
        self.hidden, self.fresh = self.fresh, 0  # fresh records are shown next time

    @rule(most=st.integers(1, 10))
    def take(self, most: int) -> None:
        shown = self.inside[: len(self.inside) - self.hidden]
        assert list(islice(self.taker.take(), most)) == shown[:most]
        self.inside = self.inside[len(shown[:most]) :]

    @invariant()
    def knows_what_waits(self) -> None:
        assert (self.sender.waiting_bytes == 0) == (not self.inside)

    def teardown(self) -> None:
        self.sender.close()
        self.taker.close()


TestTwoEnds = TwoEnds.TestCase
