"""A worker remembers a bounded number of session keys, and forgetting breaks no promise."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from relay.sessions import worker as worker_module
from tests.model.marks import ABANDONED
from tests.support.sim.world import Twin, World

pytestmark = ABANDONED

A, B = (1, None), (2, None)
BOUND = 50


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(worker_module, "DESTINATIONS", BOUND)
    yield World(7, workers=1)
    gc.collect()


def _flood(sender: Twin, count: int) -> None:
    for number in range(count):
        sender.send((3, f"never there {number}"))


def test_a_flood_of_keys_is_not_remembered(world: World) -> None:
    worker = world.workers[0].worker
    assert worker is not None
    sender, receiver = (world.connect_live(world.workers[0], key) for key in (A, B))
    for _ in range(25):
        _flood(sender, BOUND - 10)  # keys that messages wait for are kept, and stay below the bound
        sender.send(B)
        world.run_for(0.2)
        assert len(worker.destinations) <= 2 * BOUND
    assert len(receiver.got) == 25
    assert worker.destinations[B].session is receiver.session
    world.settle()


def test_keys_that_messages_wait_for_are_kept(world: World) -> None:
    """A message to a key whose twin is being looked up does not overtake those that wait."""
    worker = world.workers[0].worker
    assert worker is not None
    sender = world.connect_live(world.workers[0], A)
    sender.send((4, "x"))
    world.run_until(lambda: (4, "x") in worker.destinations, 1)
    waiting = worker.destinations[4, "x"]
    worker.forget_destinations()
    for number in range(2 * BOUND):
        worker.destination((3, str(number)))
    assert worker.destinations[4, "x"] is waiting
    sender.send((4, "x"))
    world.settle()


def test_keys_of_many_sessions_are_kept(world: World) -> None:
    worker = world.workers[0].worker
    assert worker is not None
    sender = world.connect_live(world.workers[0], A)
    keys = [(2, str(number)) for number in range(3 * BOUND)]
    receivers = [world.connect_live(world.workers[0], key) for key in keys]
    _flood(sender, 500)
    world.run_for(1)
    for key, receiver in zip(keys, receivers, strict=True):
        assert worker.destinations[key].session is receiver.session
    assert len(worker.destinations) <= 2 * (3 * BOUND + 1)
    world.settle()
