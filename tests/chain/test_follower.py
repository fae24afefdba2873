"""Tests of the follower against a simulated chain: its reports in each case, and their truth."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chain import bounds
from chain.errors import NodeError
from chain.follower import Follower
from chain.head import Head
from proto.chain.headers import Header
from tests.chain.simulation import URL, Action, Chain, Mirror, SimulatedNode, drop, twin


class Run:
    """A follower of a chain; `play` runs a script to its end."""

    def __init__(self, **options: Any) -> None:
        self.chain = Chain()
        self.mirror = Mirror()
        self.script: deque[Action] = deque()
        self.stop = threading.Event()
        self.nodes: list[SimulatedNode] = []
        self.failing = 0
        self.follower = self.follow(**options)

    def follow(self, **options: Any) -> Follower:
        self.follower = Follower([URL], self.mirror, connect=self._connect, **options)
        # The pauses between attempts have their own tests.
        self.follower._pause_s = lambda failures: 0.0  # type: ignore[method-assign]
        return self.follower

    def play(self, *script: Action) -> Mirror:
        self.script.extend(script)
        self.stop.clear()
        self.follower.run(self.stop)
        assert all(node.closed for node in self.nodes)
        return self.mirror

    def _connect(self, url: str) -> SimulatedNode:
        self.nodes.append(SimulatedNode(self.chain, self.script, self.stop))
        return self.nodes[-1]

    def check_truth(self) -> None:
        """Check that all kept twins that are not stale agree with the chain."""
        state = self.chain.head.state
        for number, (value, _) in self.mirror.kept.items():
            if number not in self.mirror.stale:
                assert value == state.get(number), number


def grow(count: int = 1, *, announce: bool = True) -> Action:
    def act(chain: Chain) -> None:
        for _ in range(count):
            chain.grow(announce=announce)

    return act


def change(number: int, relay: str, *, announce: bool = True) -> Action:
    return lambda chain: chain.grow(twin(number, relay), announce=announce)


def announce(chain: Chain) -> None:
    chain.announce()


def heights(mirror: Mirror) -> list[int]:
    return [head.height for head in mirror.heads]


def test_it_begins_at_the_head_with_a_flush_after_subscribing() -> None:
    run = Run()
    for _ in range(5):
        run.chain.grow()
    mirror = run.play(change(1, "a"), grow(), change(1, "b"))
    assert mirror.flushes == [5]
    assert mirror.changed == [(1, b"a", 6), (1, b"b", 8)]
    assert heights(mirror) == [5, 6, 7, 8]
    assert run.follower.progress.tip == mirror.heads[-1]
    assert run.follower.progress.url == ""
    assert (run.follower.progress.flushes, run.follower.progress.changes) == (1, 2)


def test_heads_left_out_are_back_filled_in_order() -> None:
    run = Run()
    mirror = run.play(
        change(1, "a", announce=False),
        change(2, "b", announce=False),
        change(1, "c", announce=False),
        announce,
        change(2, "d"),
    )
    assert mirror.changed == [(1, b"a", 1), (2, b"b", 2), (1, b"c", 3), (2, b"d", 4)]
    assert mirror.flushes == [0]
    assert heights(mirror) == [0, 3, 4]


def test_it_goes_on_where_an_earlier_run_ended() -> None:
    run = Run()
    run.play(change(1, "a"))
    run.follow(start=run.mirror.heads[-1])
    change(1, "b")(run.chain)
    mirror = run.play(change(1, "c"))
    assert mirror.flushes == [0]
    assert [relay for _, relay, _ in mirror.changed] == [b"a", b"b", b"c"]


def test_a_start_on_a_fork_that_was_left_flushes() -> None:
    run = Run()
    run.play(change(1, "a"), change(1, "b"))
    run.follow(start=run.mirror.heads[-1])
    run.chain.retract(1)
    mirror = run.play(grow(), grow())
    # A different block at the start's height may come from a node that lags; the next one
    # proves the fork.
    assert mirror.flushes == [0, 3]
    assert heights(mirror)[-1] == 3


@pytest.mark.parametrize(("missed", "flushes"), [(1, 0), (600, 0), (601, 1), (5000, 1)])
def test_catching_up(missed: int, flushes: int) -> None:
    run = Run(start=Head(0, Chain().best[0]))
    for number in range(1, missed + 1):
        run.chain.grow(twin(number, "a"))
    mirror = run.play(change(1, "b"))
    assert len(mirror.flushes) == flushes
    assert len(mirror.changed) == (1 if flushes else missed + 1)
    assert heights(mirror)[-1] == missed + 1
    if not flushes:
        assert [height for _, _, height in mirror.changed] == list(range(1, missed + 2))
        assert len(mirror.heads) == -(-missed // bounds.CATCH_UP_BLOCKS) + 1


def test_each_step_of_catching_up_has_its_own_time() -> None:
    """Each step of catching up has its own time-out.

    Over a slow connection, all headers of a gap take longer than one call may take.
    """

    class Slow(SimulatedNode):
        left_s = 0.0

        def limit(self, timeout_s: float) -> None:
            self.left_s = timeout_s

        def headers(self, hashes: Sequence[bytes | None]) -> list[Header | None]:
            self._spend(5.0)
            return super().headers(hashes)

        def changes(self, blocks: Sequence[Header]) -> Any:
            self._spend(9.0)
            return super().changes(blocks)

        def _spend(self, seconds: float) -> None:
            self.left_s -= seconds
            if self.left_s < 0:
                raise NodeError("no answer in time")

    def connect(url: str) -> Slow:
        run.failing += 1
        if run.failing == 3:
            run.stop.set()
        return Slow(run.chain, run.script, run.stop)

    run = Run(start=Head(0, Chain().best[0]))
    for number in range(1, 591):
        run.chain.grow(twin(number, "a"))
    run.follower._connect = connect
    mirror = run.play()
    assert heights(mirror)[-1] == 590
    assert (mirror.flushes, run.follower.progress.failures) == ([], 0)


def test_a_threshold_of_ones_own() -> None:
    run = Run(start=Head(0, Chain().best[0]), catchup_threshold=3)
    for _ in range(4):
        run.chain.grow()
    assert run.play().flushes == [4]


def test_a_discarded_state_flushes_and_jumps() -> None:
    run = Run(start=Head(0, Chain().best[0]))
    run.chain.states_kept = 256
    for _ in range(300):
        run.chain.grow()
    mirror = run.play(change(1, "a"))
    assert mirror.flushes == [300]
    assert mirror.changed == [(1, b"a", 301)]


def test_events_that_do_not_decode_flush_and_jump() -> None:
    run = Run()
    run.chain.unreadable.add(2)
    mirror = run.play(grow(), grow(), change(1, "a"))
    assert mirror.flushes == [0, 2]
    assert mirror.changed == [(1, b"a", 3)]


def test_a_fork_takes_changes_back() -> None:
    run = Run()
    mirror = run.play(
        change(1, "old"),
        change(2, "kept"),
        change(1, "fork"),
        change(3, "fork"),
        lambda chain: chain.retract(2),
        change(4, "new"),
    )
    run.check_truth()
    assert mirror.reverted == [1, 3]
    assert mirror.kept[1][0] == twin(1, "old")
    assert mirror.kept[3][0] is None
    assert mirror.kept[4][0] == twin(4, "new")
    assert mirror.flushes == [0]
    assert run.follower.progress.forks == 1
    # No later report has a lower height than those of the fork.
    assert [height for _, _, height in mirror.changed] == [1, 2, 3, 4, 4]


def test_a_look_up_read_on_a_longer_fork_is_not_taken() -> None:
    run = Run()
    run.play(change(1, "old"), change(1, "fork"), grow(3))
    answer = run.chain.head.state[1], run.chain.head.header.number
    run.play(lambda chain: chain.retract(4), grow())
    run.mirror.looked_up(1, *answer)
    run.check_truth()
    assert run.mirror.kept[1][0] == twin(1, "old")


def test_a_change_that_is_on_both_branches_stays() -> None:
    run = Run()
    run.play(change(1, "a"), lambda chain: chain.retract(1), change(1, "b"), change(1, "c"))
    run.check_truth()
    assert run.mirror.kept[1][0] == twin(1, "c")


def test_a_fork_from_before_the_blocks_remembered_flushes() -> None:
    run = Run()
    mirror = run.play(
        grow(bounds.RECENT_BLOCKS + 6),
        lambda chain: chain.retract(bounds.RECENT_BLOCKS + 3),
        grow(bounds.RECENT_BLOCKS + 4, announce=False),
        announce,
    )
    assert mirror.flushes == [0, bounds.RECENT_BLOCKS + 7]


def test_a_head_that_was_left_before_it_was_looked_at() -> None:
    def act(chain: Chain) -> None:
        for number in range(1, 5):
            chain.grow(twin(number, "left"), announce=number == 4)
        chain.retract(3)
        for number in range(3):
            chain.grow(twin(5, f"v{number}"), announce=number == 2)

    run = Run()
    mirror = run.play(act)
    run.check_truth()
    # Both heads are reported, the first although it is no longer on the node's chain.
    assert [relay for _, relay, _ in mirror.changed] == [b"left"] * 4 + [b"v0", b"v1", b"v2"]
    assert mirror.reverted == [2, 3, 4]
    assert mirror.flushes == [0]


def test_a_node_without_the_parent_of_its_head_is_left() -> None:
    def act(chain: Chain) -> None:
        chain.grow(announce=False)
        chain.grow()
        del chain.blocks[chain.best[-2]]

    run = Run()
    stopped = []

    def pause_s(failures: int) -> float:
        stopped.append(failures)
        if failures:
            run.stop.set()
        return 0.0

    run.follower._pause_s = pause_s  # type: ignore[method-assign]
    run.play(act)
    assert "does not have the parent of block 2" in run.follower.progress.last_error


def test_a_node_that_lags_takes_nothing_back() -> None:
    run = Run()
    run.play(change(1, "a"), change(1, "b"), change(1, "c"))
    best = list(run.chain.best)

    def catch_up(chain: Chain) -> None:
        chain.best = best
        chain.announce()

    del run.chain.best[-2:]
    mirror = run.play(announce, catch_up, change(1, "d"))
    assert mirror.reverted == []
    assert [relay for _, relay, _ in mirror.changed] == [b"a", b"b", b"c", b"d"]


def test_a_chain_that_began_anew_flushes() -> None:
    """A node far behind may still be syncing, so the follower believes it only after a while."""
    seconds = itertools.count()
    run = Run(start=Head(5000, b"x" * 32), clock=lambda: float(next(seconds)))
    mirror = run.play(change(1, "a"))
    assert mirror.flushes == [0]
    assert mirror.changed == [(1, b"a", 1)]
    assert "the node is behind, at block 0 of 5000" in run.follower.progress.last_error
    assert run.follower.progress.failures > 5


def test_a_node_far_behind_takes_nothing_back() -> None:
    run = Run()
    run.play(change(1, "old"), grow(60), change(1, "new"), grow(60))
    best = list(run.chain.best)
    lengths = iter([40, 50, len(best)])

    def connect(url: str) -> SimulatedNode:
        run.chain.best = best[: next(lengths)]
        return SimulatedNode(run.chain, run.script, run.stop)

    run.follower._connect = connect
    mirror = run.play(change(1, "newer"))
    assert mirror.flushes == [0]
    assert [relay for _, relay, _ in mirror.changed] == [b"old", b"new", b"newer"]
    run.check_truth()
    assert run.follower.progress.last_error == "the node is behind, at block 49 of 122"


def test_a_lost_connection_loses_no_change() -> None:
    run = Run()
    mirror = run.play(
        change(1, "a"),
        change(1, "b", announce=False),
        drop,
        change(1, "c"),
        drop,
        drop,
        change(1, "d"),
    )
    assert [relay for _, relay, _ in mirror.changed] == [b"a", b"b", b"c", b"d"]
    assert mirror.flushes == [0]
    assert len(run.nodes) == run.follower.progress.connections == 4


def test_a_look_up_under_way_does_not_bring_the_old_value() -> None:
    run = Run()
    run.play(change(1, "old"))
    answer = run.chain.head.state[1], run.chain.head.header.number
    run.play(change(1, "new"))
    run.mirror.looked_up(1, *answer)
    run.check_truth()
    assert run.mirror.kept[1][0] == twin(1, "new")


def test_a_look_up_from_before_the_flush_leaves_a_twin_stale() -> None:
    run = Run()
    run.play(change(1, "old"))
    answer = run.chain.head.state[1], run.chain.head.header.number
    run.chain.grow(twin(1, "missed"))
    run.follow()
    run.play()
    run.mirror.looked_up(1, *answer)
    assert run.mirror.stale == {1}
    run.mirror.looked_up(1, run.chain.head.state[1], 2)
    run.check_truth()
    assert run.mirror.stale == set()


# Arbitrary sequences of events.

_IDS = st.integers(1, 4)
_ACTIONS = st.one_of(
    st.tuples(st.just("grow"), st.lists(_IDS, max_size=2, unique=True), st.booleans()),
    st.tuples(st.just("fork"), st.integers(1, 6), st.integers(1, 8)),
    st.tuples(st.just("ask"), _IDS),
    st.tuples(st.just("answer")),
    st.tuples(st.just("drop")),
    st.tuples(st.just("miss"), st.integers(1, 15)),
    st.tuples(st.just("keep"), st.integers(2, 12)),
    st.tuples(st.just("restart")),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_ACTIONS, max_size=40), st.integers(4, 20))
def test_what_is_kept_is_true_after_any_course_of_events(
    actions: list[tuple[Any, ...]], threshold: int
) -> None:
    run = Run(catchup_threshold=threshold)
    under_way: deque[tuple[int, Any, int]] = deque()
    values = 0

    def act(action: tuple[Any, ...]) -> None:
        nonlocal values
        chain, kind = run.chain, action[0]
        if kind == "grow":
            values += 1
            chain.grow(*(twin(n, f"v{values}") for n in action[1]), announce=action[2])
        elif kind == "fork":
            values += 1
            chain.retract(action[1])
            for n in range(action[2]):
                chain.grow(twin(1 + n % 4, f"f{values}"), announce=n == action[2] - 1)
        elif kind == "ask":
            # A look-up reads a head that is announced at once, as a node announces all heads.
            chain.announce()
            head = chain.head
            under_way.append((action[1], head.state.get(action[1]), head.header.number))
        elif kind == "answer" and under_way:
            run.mirror.looked_up(*under_way.popleft())
        elif kind == "miss":
            for _ in range(action[1]):
                chain.grow(announce=False)
        elif kind == "keep":
            chain.states_kept = action[1]

    script: list[Action] = []
    for action in actions:
        if action[0] == "drop":
            script.append(drop)
        elif action[0] == "restart":
            run.play(*script)
            script = []
            run.follow(
                start=run.mirror.heads[-1] if run.mirror.heads else None,
                catchup_threshold=threshold,
            )
        else:
            script.append(lambda chain, action=action: act(action))  # type: ignore[misc]
    # After a restart, the follower detects that its tip left the chain only when the chain
    # has grown longer.
    run.play(*script, *[grow()] * 50)
    while under_way:
        run.mirror.looked_up(*under_way.popleft())
    assert run.mirror.heads[-1].hash == run.chain.best[-1]
    run.check_truth()
