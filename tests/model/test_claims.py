"""Clients that are gone before their key was claimed, in simulated time."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

from tests.model.marks import ABANDONED
from tests.support.sim.redis import ServerConnection
from tests.support.sim.values import ReplyError
from tests.support.sim.world import World

pytestmark = ABANDONED

A, B = (1, None), (2, None)


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7, workers=1)
    gc.collect()


def redial(world: World, times: int = 10) -> None:
    for _ in range(times):
        twin = world.connect(world.workers[0], B)
        world.run_for(0.2)
        twin.client.reset()
        world.run_for(0.2)


def test_redials_while_redis_is_away_leave_nothing_behind(world: World) -> None:
    here = world.workers[0]
    worker = here.worker
    assert worker is not None
    keeps = world.connect_live(here, A)
    world.crash_redis()
    redial(world)
    assert list(worker.sessions) == [keeps.session]
    world.restart_redis()
    world.run_for(1)
    keeps.send(B)
    late = world.connect_live(here, B)
    world.run_until(lambda: len(late.got) == 1, 2)
    world.settle()


def test_claims_that_redis_refuses_end_with_their_clients(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused claims end with their clients, and are logged once, however many there are."""
    here = world.workers[0]
    worker = here.worker
    assert worker is not None
    keeps = world.connect_live(here, A)
    handle = world.redis.handle
    refused = 0

    def refusing(connection: ServerConnection, argv: list[bytes]) -> None:
        nonlocal refused
        if argv[0] == b"EVAL" and b"relay:sessions" in argv:
            refused += 1
            connection.reply(ReplyError("MISCONF it cannot save"))
        else:
            handle(connection, argv)

    world.redis.handle = refusing  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING, "relay.sessions.takeover"):
        redial(world)
    assert list(worker.sessions) == [keeps.session]
    assert refused >= 10
    assert [record.levelname for record in caplog.records].count("WARNING") == 1
    world.redis.handle = handle  # type: ignore[method-assign]
    late = world.connect_live(here, B)
    keeps.send(B)
    world.run_until(lambda: len(late.got) == 1, 2)
    world.settle()


def test_claims_of_one_turn_are_one_request(world: World) -> None:
    here = world.workers[0]
    handle, requests = world.redis.handle, []

    def counting(connection: ServerConnection, argv: list[bytes]) -> None:
        if argv[0] == b"EVAL" and argv[1].startswith(b"-- name: claim"):
            requests.append(argv)
        handle(connection, argv)

    world.redis.handle = counting  # type: ignore[method-assign]
    twins = [world.connect(here, (number, None)) for number in range(1, 101)]
    world.run_until(lambda: all(world.holder(twin.key) is not None for twin in twins), 2)
    assert len(requests) <= 4
    world.run_for(1)
    assert all(twin.session.memory_mode for twin in twins)
    world.settle()


def test_a_client_that_ends_while_its_claim_is_unanswered(world: World) -> None:
    """The entry is released after the answer, since Redis may have carried out the claim."""
    here = world.workers[0]
    twin = world.connect(here, B)
    world.run_until(lambda: world.holder(B) is not None, 1)
    assert here.commit_link is not None and twin.session.epoch == 0
    here.commit_link.cut()
    twin.client.reset()
    world.run_until(lambda: world.holder(B) is None, 5)
    assert here.worker is not None
    world.run_until(lambda: not here.worker.sessions, 2)
    world.settle()


@pytest.mark.parametrize("seed", range(40, 50))
def test_a_run_is_judged_by_readers_that_come_after_all_claims(seed: int) -> None:
    """The judging reader does not lose its key to a late claim for an earlier client that left."""
    world = World(seed)
    first, second = world.workers
    world.connect_live(first, A).send(B)
    world.run_for(1)
    world.crash_redis()
    world.connect(second, B).client.vanish()
    world.restart_redis(loading_s=40)
    world.settle()
