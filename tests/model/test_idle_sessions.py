"""Costs of a session that has stopped sending, in simulated time."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest

from proto.rmb import inbound
from relay.queues.batch import Batch
from relay.sessions import sender, session
from relay.sessions.upkeep import CHECK_S
from tests.model.marks import ABANDONED
from tests.support.sim.world import World

pytestmark = ABANDONED

A, B = (1, None), (2, None)
CROWD = range(10, 40)
MOST_BYTES = 800
"""Maximum size of an idle session, in bytes.

It covers both halves of the session's connection, without queues, socket and twin."""


@pytest.fixture
def world() -> Iterator[World]:
    gc.collect()
    yield World(7, workers=1)
    gc.collect()


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "refused"])
def test_nothing_is_kept_of_its_last_message(world: World, stored: bool) -> None:
    """A session's last batch keeps no items, although the session refers to it.

    The session refers to the batch because a pong waits for the last one.
    """
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


def test_both_halves_of_its_connection_are_small_again(world: World) -> None:
    here = world.workers[0]
    world.connect_live(here, A).ping()
    tracemalloc.start()
    try:
        clients = [world.connect_live(here, (twin, None)) for twin in CROWD]
        answers = [client.ping() for client in clients]
        for client, answer in zip(clients, answers, strict=True):
            world.run_until(lambda c=client, a=answer: a in c.got, 10)
        world.run_for(2 * CHECK_S)
        gc.collect()
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    files = [
        tracemalloc.Filter(True, str(module.__file__)) for module in (session, sender, inbound)
    ]
    held = sum(each.size for each in taken.filter_traces(files).traces)
    assert held / len(CROWD) < MOST_BYTES
    world.settle()
