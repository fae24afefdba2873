"""Restarts of Redis without loss, or with loss of its latest writes, in simulated time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from relay.queues import batch, commit
from tests.model.marks import ABANDONED
from tests.model.test_scenarios import A, B, burst
from tests.support.sim.world import World

pytestmark = ABANDONED


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7)
    gc.collect()


def test_redis_restarts_and_client_ids_start_again(world: World) -> None:
    """CLIENT KILL is sent only if the run id is unchanged: the ids could now belong to others."""
    here, there = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(there, B)
    burst(sender)
    world.crash_redis()
    world.run_for(0.2)
    world.restart_redis()
    world.run_until(lambda: len(set(receiver.got)) == 10, 5)
    world.run_for(2)
    connections = [p.worker.commit.pipe.connections for p in (here, there) if p.worker]
    assert max(connections) <= 3, "the workers kill each other's connections"
    world.settle()


def test_an_idle_worker_keeps_its_number(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle worker renews its number: an expired one would look as if Redis had lost writes."""
    monkeypatch.setattr(batch, "COMMIT_TTL_S", 100)
    here, _ = world.living
    sender = world.connect_live(here, A)
    burst(sender)
    world.run_for(110)
    assert here.commit_link is not None and here.worker is not None
    here.commit_link.cut()
    world.run_for(2)
    assert here.worker.metrics.went_back == 0
    world.settle()


def test_a_number_that_ran_out_while_redis_was_away_proves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (batch, commit):
        monkeypatch.setattr(module, "COMMIT_TTL_S", 100)
    here, _ = world.living
    burst(world.connect_live(here, A))
    world.run_for(1)
    world.network.unreachable = True
    for link in here.links:
        link.cut()
    world.run_for(110)
    world.network.unreachable = False
    world.run_for(5)
    assert here.worker is not None and here.worker.metrics.redis_reconnects
    assert here.worker.metrics.went_back == 0
    world.settle()


def test_a_restart_that_kept_everything_is_no_loss(world: World) -> None:
    """A new run id alone is no loss if queued messages and batch numbers are still there."""
    here, there = world.living
    burst(world.connect_live(here, A))
    world.run_for(1)
    world.crash_redis()
    world.restart_redis()
    world.run_for(2)
    for process in (here, there):
        assert process.worker is not None
        assert process.worker.metrics.redis_restarts == 1
        assert process.worker.metrics.went_back == 0
    assert world.stream_length(B) == 10
    world.settle()


def test_a_restart_that_lost_everything_is_seen_by_idle_workers(world: World) -> None:
    """Idle workers notice a loss although none of their own commits is missing."""
    here, there = world.living
    world.write_from_outside(B)
    world.run_for(1)
    world.crash_redis(lose=world.redis.writes)
    world.restart_redis()
    world.run_for(2)
    for process in (here, there):
        assert process.worker is not None and process.worker.metrics.went_back == 1
    world.crash_redis()
    world.restart_redis()
    world.run_for(2)
    for process in (here, there):
        assert process.worker is not None and process.worker.metrics.went_back == 1
    world.settle()


def test_redis_forgets_and_ids_go_back(world: World) -> None:
    """An entry is skipped as known only if both its id and its content match."""
    here, _ = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    burst(sender)
    world.run_until(lambda: len(receiver.got) == 10, 2)
    world.crash_redis(lose=6)
    world.restart_redis()
    world.run_for(1)
    assert here.worker is not None and here.worker.metrics.went_back == 1
    burst(sender)
    world.run_until(lambda: len(set(receiver.got)) == 20, 5)
    world.settle()
