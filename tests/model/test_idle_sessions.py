"""What a session costs that sends nothing any more, in simulated time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from relay.queues.batch import Batch
from tests.model.marks import ABANDONED
from tests.support.sim.world import World

pytestmark = ABANDONED

A, B = (1, None), (2, None)


@pytest.fixture
def world() -> Iterator[World]:
    gc.collect()
    yield World(7, workers=1)
    gc.collect()


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "refused"])
def test_nothing_is_kept_of_its_last_message(world: World, stored: bool) -> None:
    """A pong waits for the last batch, which therefore is known for as long as the session."""
    here = world.workers[0]
    sender = world.connect_live(here, A)
    world.connect_live(here, B)
    if not stored:
        world.redis.fill_memory()
    sender.send(B, 100_000)
    last = sender.ping()
    world.run_until(lambda: last in sender.got, 10)
    assert not [each for each in gc.get_objects() if type(each) is Batch and each.items]
    world.settle()
