"""The sweep over all queues, which one worker does for all, in simulated time."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator

import pytest

from relay.queues import keys
from relay.queues.batch import QueuePolicy
from relay.sessions.upkeep import SWEEP_LEASE, SWEEP_S
from tests.model.marks import ABANDONED
from tests.support.sim.world import SESSION_BOUNDS, World

pytestmark = ABANDONED

A, B, ABSENT = (1, None), (2, None), (3, None)
RETENTION_S = 180
BOUNDS = SESSION_BOUNDS._replace(idle_timeout_s=0)


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7, workers=2, queue_policy=QueuePolicy(retention_s=RETENTION_S), bounds=BOUNDS)
    gc.collect()


def stored(world: World, key: str) -> bytes | None:
    """Return the value of a key that other processes would read from Redis."""
    found = world.redis.db.peek(key.encode())
    assert found is None or isinstance(found, bytes)
    return found


def test_it_counts_what_waits(world: World) -> None:
    sender = world.connect_live(world.workers[0], A)
    for _ in range(5):
        sender.send(ABSENT)
    world.run_for(SWEEP_S + 1)
    assert stored(world, keys.WAITING) == b"5"
    assert json.loads(stored(world, keys.FULLEST) or b"") == []
    world.settle()


def test_another_worker_goes_on_when_the_one_that_does_it_is_gone(world: World) -> None:
    first, second = world.workers
    world.connect_live(first, A).send(ABSENT)
    world.run_for(SWEEP_S + 1)
    by_name = {process.worker.boot_id.encode(): process for process in (first, second)}  # type: ignore[union-attr]
    holder = by_name[stored(world, SWEEP_LEASE) or b""]
    other = second if holder is first else first
    world.kill_worker(holder)
    world.connect_live(other, B).send(ABSENT)
    world.run_for(4 * SWEEP_S)
    assert by_name[stored(world, SWEEP_LEASE) or b""] is other
    assert stored(world, keys.WAITING) == b"2"
    world.settle()


def test_the_queue_of_a_held_session_lives_on(world: World) -> None:
    """The queue of a held session does not expire, and one without a session does.

    Deliveries to a held session do not check the queue's time to live.
    """
    here, there = world.workers
    sender, receiver = world.connect_live(here, A), world.connect_live(there, B)
    sender.send(B)
    gone = world.connect_live(there, ABSENT)
    sender.send(ABSENT)
    world.run_for(1)
    gone.client.close()
    world.run_for(3 * RETENTION_S)  # a queue without additions lives twice as long as a message
    assert world.redis.db.peek(keys.stream("2")) is not None
    assert world.redis.db.peek(keys.stream("3")) is None
    last = sender.send(B)
    world.run_until(lambda: last.uid in receiver.got, 5)
    world.settle()


def test_a_foreign_key_of_a_queues_name_stops_nothing(world: World) -> None:
    world.redis.run("SET", "stream:of-somebody-else", "1")
    world.connect_live(world.workers[0], A).send(ABSENT)
    world.run_for(RETENTION_S + 3 * SWEEP_S)
    assert world.stream_length(ABSENT) == 0
    assert stored(world, keys.WAITING) == b"0"
