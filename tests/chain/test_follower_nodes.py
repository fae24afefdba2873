"""Tests of how the follower chooses its nodes, and when it pauses."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from chain.errors import NodeError
from chain.follower import Follower
from chain.head import Head
from proto.chain.headers import Header
from tests.chain.simulation import URL, Chain, Mirror, SimulatedNode, drop


def test_pauses_grow_after_each_round_through_the_nodes() -> None:
    one = Follower([URL], Mirror())
    assert [one._pause_s(n) for n in range(7)] == [0, 1, 2, 4, 6, 6, 6]
    assert one._pause_s(10_000) == 6
    two = Follower(["ws://a", "ws://b"], Mirror())
    assert [two._pause_s(n) for n in range(8)] == [0, 0, 1, 0, 2, 0, 4, 0]


def test_a_stall_gives_the_next_node_its_turn() -> None:
    class Silent(SimulatedNode):
        def next_head(self, timeout_s: float) -> Any:
            nonlocal now
            now += 1.0
            return super().next_head(timeout_s) if self._chain.announced else None

    now = 0.0
    stop, urls = threading.Event(), []

    def connect(url: str) -> SimulatedNode:
        urls.append(url)
        if len(urls) == 4:
            stop.set()
        return Silent(Chain(), deque(), stop)

    follower = Follower(["ws://a", "ws://b"], Mirror(), connect=connect, clock=lambda: now)
    follower._pause_s = lambda failures: 0.0  # type: ignore[method-assign]
    follower.run(stop)
    assert urls == ["ws://a", "ws://b", "ws://a", "ws://b"]
    assert "no new block for 7 s" in follower.progress.last_error
    assert now == pytest.approx(3 * 8, abs=1)


def test_nodes_whose_heads_lead_nowhere_are_not_asked_without_a_pause() -> None:
    class Broken(SimulatedNode):
        def changes(self, blocks: Sequence[Header]) -> Any:
            raise NodeError("broken")

    stop, pauses = threading.Event(), []
    chain = Chain()
    start = Head(0, chain.best[0])
    chain.grow()

    def pause_s(failures: int) -> float:
        pauses.append(failures)
        if len(pauses) == 6:
            stop.set()
        return 0.0

    follower = Follower(
        ["ws://a", "ws://b"],
        Mirror(),
        start=start,
        connect=lambda url: Broken(chain, deque(), threading.Event()),
    )
    follower._pause_s = pause_s  # type: ignore[method-assign]
    follower.run(stop)
    assert pauses == [0, 1, 2, 3, 4, 5]


def test_nodes_that_end_each_connection_are_not_asked_without_a_pause() -> None:
    """The follower pauses between nodes that end each connection after sending the current head.

    Nodes that allow no subscriptions behave like this.
    """
    stop, pauses = threading.Event(), []
    chain = Chain()
    start = Head(0, chain.best[0])

    def pause_s(failures: int) -> float:
        pauses.append(failures)
        if len(pauses) == 4:
            chain.grow()
        if len(pauses) == 6:
            stop.set()
        return 0.0

    follower = Follower(
        ["ws://a", "ws://b"],
        Mirror(),
        start=start,
        connect=lambda url: SimulatedNode(chain, deque([drop]), threading.Event()),
    )
    follower._pause_s = pause_s  # type: ignore[method-assign]
    follower.run(stop)
    assert pauses == [0, 1, 2, 3, 1, 2], "a new block shows that it was of use"


def test_nodes_that_cannot_be_reached_are_tried_in_turn() -> None:
    stop, urls = threading.Event(), []

    def connect(url: str) -> SimulatedNode:
        urls.append(url)
        if len(urls) == 5:
            stop.set()
        raise NodeError(f"{url}: refused")

    follower = Follower(["ws://a", "ws://b"], Mirror(), connect=connect)
    follower._pause_s = lambda failures: 0.0  # type: ignore[method-assign]
    follower.run(stop)
    assert urls == ["ws://a", "ws://b", "ws://a", "ws://b", "ws://a"]
    assert follower.progress.last_error == "ws://a: refused"
    assert (follower.progress.failures, follower.progress.connections) == (5, 0)


@pytest.mark.parametrize(
    "urls", [[], ["http://x"], ["ws://"], ["ws://a"] * 33, ["ws://" + "a" * 600]]
)
def test_addresses_are_checked(urls: Sequence[str]) -> None:
    with pytest.raises(ValueError, match="chain node"):
        Follower(urls, Mirror())
