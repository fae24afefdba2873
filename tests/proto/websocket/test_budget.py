"""Tests of which connections end when incomplete messages exhaust the budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st

from proto.websocket.budget import MessageBudget


class Connection:
    """A holder that records whether it was ended."""

    def __init__(self, budget: MessageBudget, account: Hashable | None = None) -> None:
        self.budget = budget
        self.account = account
        self.charged_bytes = 0
        self.ended = False

    def give_up(self) -> None:
        assert self.charged_bytes == 0
        self.ended = True
        self.budget.settle(self, 0)  # as a reader does when it closes

    def hold(self, size_bytes: int) -> bool:
        return self.budget.settle(self, size_bytes)


def test_four_connections_of_one_twin_do_not_keep_others_out() -> None:
    budget = MessageBudget(64)
    idle = [Connection(budget, "attacker") for _ in range(4)]
    assert all(connection.hold(16) for connection in idle)
    honest = Connection(budget, "honest")
    assert all(honest.hold(size) for size in range(1, 17))
    assert sum(connection.ended for connection in idle) == 1
    assert (budget.used_bytes, budget.refused) == (64, 1)


def test_many_small_holds_of_one_twin_are_one_large_one() -> None:
    """Many small holds of one account count as one large one, even if all of them keep growing."""
    budget = MessageBudget(64)
    attacker = [Connection(budget, "attacker") for _ in range(64)]
    honest = Connection(budget, "honest")
    for size in range(1, 17):
        for connection in attacker:
            if not connection.ended and not connection.hold(connection.charged_bytes + 1):
                connection.ended = True
                connection.hold(0)
        assert honest.hold(size)
    assert not honest.ended


def test_who_has_the_most_himself_is_the_one_to_go() -> None:
    budget = MessageBudget(64)
    small = [Connection(budget, number) for number in range(4)]
    assert all(connection.hold(10) for connection in small)
    greedy = Connection(budget, "greedy")
    assert greedy.hold(24)
    assert not greedy.hold(25)
    assert not any(connection.ended for connection in small)
    assert (greedy.charged_bytes, greedy.ended, budget.used_bytes) == (24, False, 64)


def test_of_equals_the_asker_goes() -> None:
    budget = MessageBudget(10)
    first, second = Connection(budget), Connection(budget)
    assert first.hold(6)
    assert not second.hold(6)
    assert second.hold(4)
    assert not first.ended


def test_of_one_account_the_largest_goes() -> None:
    """Of one account the largest holder ends, e.g. the old connection of a client that returns."""
    budget = MessageBudget(10)
    old, older, new = (Connection(budget, "twin") for _ in range(3))
    assert old.hold(6)
    assert older.hold(4)
    assert new.hold(1)
    assert (old.ended, older.ended) == (True, False)
    assert not new.hold(7)


def test_as_many_go_as_it_takes() -> None:
    budget = MessageBudget(10)
    small = [Connection(budget, "attacker") for _ in range(10)]
    assert all(connection.hold(1) for connection in small)
    other = Connection(budget, "other")
    assert other.hold(3)
    assert [connection.ended for connection in small] == [True] * 3 + [False] * 7
    assert budget.refused == 3


@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 60)), max_size=80))
def test_nobody_goes_for_one_that_holds_more(steps: list[tuple[int, int]]) -> None:
    budget = MessageBudget(100)
    connections = [Connection(budget, number // 3) for number in range(12)]
    for number, size in steps:
        asker = connections[number]
        if asker.ended:
            continue
        before = {c: c.charged_bytes for c in connections}
        shares: Counter[Hashable] = Counter()
        for connection in connections:
            shares[connection.account] += connection.charged_bytes
        wanted = shares[asker.account] + size - asker.charged_bytes
        gone_before = {c for c in connections if c.ended}
        if not asker.hold(size):
            assert asker.charged_bytes == before[asker]
            assert wanted > 100 / 4, "a fourth is for certain: there are four accounts"
        for gone in {c for c in connections if c.ended} - gone_before:
            if gone.account == asker.account:
                assert before[gone] > size
            else:
                assert shares[gone.account] > wanted
                assert shares[gone.account] > 100 / 4
        assert sum(c.charged_bytes for c in connections) == budget.used_bytes <= 100
