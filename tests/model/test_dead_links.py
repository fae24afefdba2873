"""Connections to Redis that are dead without either side being notified, in simulated time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from redispipe.pipe import ANSWER_S
from tests.model.marks import ABANDONED
from tests.support.sim.world import World

pytestmark = ABANDONED

A, B = (1, None), (2, None)
FOUND_S = 1.5 * ANSWER_S
FOR_EVER_S = 3_600.0


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7)
    gc.collect()


def test_a_commit_connection_with_a_batch_on_it(world: World) -> None:
    here, _ = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    assert here.commit_link is not None and here.worker is not None
    world.run_for(2)
    here.commit_link.stall(FOR_EVER_S)
    sender.send(B)
    world.run_for(ANSWER_S / 2)
    assert here.worker.upkeep.state == "ok"
    world.run_until(lambda: len(receiver.got) == 1, FOUND_S)
    assert here.worker.upkeep.state == "ok"
    world.settle()


def test_a_pubsub_connection_where_nothing_happens(world: World) -> None:
    here, there = world.living
    holder = world.connect_live(here, B)
    assert here.pubsub_link is not None and here.worker is not None
    here.pubsub_link.stall(FOR_EVER_S)
    world.run_for(FOUND_S)
    sender = world.connect_live(there, A)
    sender.send(B)
    world.run_until(lambda: len(holder.got) == 1, 1)
    world.settle()


def test_a_redis_that_stands_still_is_waited_for(world: World) -> None:
    """The worker is not ready while Redis is suspended, and its connections are kept."""
    here, _ = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    worker = here.worker
    assert worker is not None
    world.redis_loop.freeze_for(3 * ANSWER_S)
    sender.send(B)
    world.run_for(2 * ANSWER_S)
    assert worker.upkeep.state == "redis_away"
    world.run_until(lambda: len(receiver.got) == 1, 2 * ANSWER_S)
    assert worker.commit.pipe.connections == worker.hub.pipe.connections == 1
    world.run_for(2)
    assert worker.upkeep.state == "ok"
    world.settle()
