"""Bounds are checked against the state at the arrival of a message, in simulated time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from relay.federation.outbox import OutboxBounds
from relay.queues import keys
from relay.queues.batch import QueuePolicy
from tests.model.marks import ABANDONED
from tests.model.test_scenarios import A, burst
from tests.support.sim.world import GUEST_TWIN, Twin, World

pytestmark = ABANDONED

B, C = (2, None), (3, None)
RESTS_S = (0.6, 2.0, 25.0)
"""Pauses between filling a queue and trying again, in seconds."""


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


def refused(twin: Twin) -> int:
    """Return how many messages of this connection the relay refused."""
    return int(twin.session.drops)


@pytest.mark.parametrize("rest_s", RESTS_S)
def test_an_outbox_account_that_was_full_takes_what_comes_later(rest_s: float) -> None:
    world = World(7, workers=1, outbox=OutboxBounds(max_messages=40))
    sender = world.connect_live(world.workers[0], A)
    for _ in range(6):
        burst(sender, (GUEST_TWIN, None))
        world.run_for(0.02)
    assert refused(sender) > 0
    world.redis.run("DEL", keys.held("elsewhere.test"))  # as if all of it was delivered
    before = refused(sender)
    world.run_for(rest_s)
    burst(sender, (GUEST_TWIN, None), 9)
    world.run_for(0.5)
    assert refused(sender) == before


@pytest.mark.parametrize("rest_s", RESTS_S)
def test_a_queue_that_was_full_takes_what_comes_later(rest_s: float) -> None:
    world = World(7, workers=1, queue_policy=QueuePolicy(max_messages=40))
    others = [world.connect_live(world.workers[0], (number, None)) for number in range(10, 15)]
    for sender in others:
        burst(sender, B)
        world.run_for(0.02)
    assert sum(map(refused, others)) > 0
    world.redis.run("DEL", "stream:2", keys.share("2"))  # as if a session of another worker took it
    before = sum(map(refused, others))
    world.run_for(rest_s)
    for sender in others:
        burst(sender, B, 4)
    world.run_for(0.5)
    assert sum(map(refused, others)) == before


@pytest.mark.parametrize("rest_s", RESTS_S)
def test_a_share_that_was_used_up_takes_what_comes_later(rest_s: float) -> None:
    """A used-up share accepts messages again, even while others fill the queue.

    What the worker knows about the queue is then always fresh.
    """
    world = World(7, workers=1, queue_policy=QueuePolicy(max_messages=80))
    greedy = world.connect_live(world.workers[0], A)
    other = world.connect_live(world.workers[0], C)
    for _ in range(6):
        burst(greedy, B)
        world.run_for(0.02)
    assert refused(greedy) > 0
    world.redis.run("HSET", keys.share("2"), "1", "1")  # as if most of it was moved away
    before = refused(greedy)
    for _ in range(round(rest_s / 0.3)):
        world.run_for(0.3)
        other.send(B)
        oldest = world.redis.run("XRANGE", "stream:2", "-", "+", "COUNT", "1")
        world.redis.run("XDEL", "stream:2", oldest[0][0])
    greedy.send(B)
    world.run_for(0.5)
    assert refused(greedy) == before


def test_what_waits_for_an_answer_keeps_its_order_and_its_pong() -> None:
    world = World(7, workers=1, queue_policy=QueuePolicy(max_messages=40))
    sender = world.connect_live(world.workers[0], A)
    for _ in range(6):
        burst(sender, B)
        world.run_for(0.02)
    world.redis.run("DEL", "stream:2", keys.share("2"))
    world.run_for(1)
    uids = [sender.send(B).uid for _ in range(5)]
    pong = sender.ping()
    world.run_until(lambda: pong in sender.got, 2)
    assert world.stream_length(B) == len(uids)
    receiver = world.connect_live(world.workers[0], B)
    world.run_until(lambda: len(receiver.got) == len(uids), 2)
    assert receiver.got == uids


def test_sessions_that_find_a_queue_full_share_one_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(7, workers=1, queue_policy=QueuePolicy(max_messages=40))
    senders = [world.connect_live(world.workers[0], A)]
    senders += [world.connect_live(world.workers[0], (1, f"s{n}")) for n in range(20)]
    for _ in range(6):
        burst(senders[0], B)
        world.run_for(0.02)
    world.run_for(1)
    here = world.workers[0].worker
    assert here is not None
    commit = here.commit
    submit, asked = commit.submit, []

    def counting(payload: bytes, callback: Any, skip: int = 0) -> None:
        if b"MEMORY" in payload:
            asked.append(payload)
        submit(payload, callback, skip)

    monkeypatch.setattr(commit, "submit", counting)
    for sender in senders:
        sender.send(B)
    world.run_for(0.05)
    assert len(asked) == 1


def test_an_old_answer_has_nothing_dropped_from_a_queue() -> None:
    """The oldest messages are dropped only from a queue that is full now, not from one that was."""
    policy = QueuePolicy(max_messages=400, max_bytes=4_000, drop_oldest=True)
    world = World(7, workers=1, queue_policy=policy)
    here, sender = world.workers[0], world.connect_live(world.workers[0], A)
    assert here.worker is not None
    for _ in range(4):
        sender.send(B, 900)
        world.run_for(0.15)
    world.redis.run("DEL", "stream:2")
    world.run_for(1)
    for _ in range(20):
        world.write_from_outside(B)
    before = here.worker.metrics.drops.total()
    sender.send(B)
    world.run_for(0.2)
    assert here.worker.metrics.drops.total() == before
    assert world.stream_length(B) == 21


def test_a_queue_is_measured_after_each_time_its_oldest_are_dropped() -> None:
    """The queue is measured after each drop: its old size would make later batches drop more."""
    policy = QueuePolicy(max_messages=10_000, max_bytes=40_000, drop_oldest=True)
    world = World(7, workers=1, queue_policy=policy)
    sender = world.connect_live(world.workers[0], A)
    for _ in range(100):
        sender.send(B, 400)
        world.run_for(0.01)
    held = int(world.redis.run("MEMORY", "USAGE", "stream:2"))
    assert 0.8 * policy.max_bytes < held < 1.3 * policy.max_bytes
