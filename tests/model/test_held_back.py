"""Connections that are not read for a while are read again later, in simulated time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from proto.rmb.reasons import SessionReason
from relay.queues import commit
from relay.queues.batch import ITEM_BYTES
from relay.queues.commit import WAITING_BYTES
from relay.sessions.options import SessionBounds
from relay.sessions.sender import AWAY_BYTES, NOTICE_BYTES
from relay.sessions.session import SOCKET_PART
from tests.model.marks import ABANDONED
from tests.support.sim.world import World

pytestmark = ABANDONED

A, B, C = (1, None), (2, None), (3, None)
BOUNDS = SessionBounds(64, 40_000, back_pressure_s=60, idle_timeout_s=0)
SIZE_BYTES = 4_096


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7, workers=1, bounds=BOUNDS)
    gc.collect()


def test_a_sender_whose_own_socket_is_full_when_redis_is_back(world: World) -> None:
    """A sender is read again, although one large message had filled its socket unnoticed."""
    here = world.workers[0]
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    sender.client.stop_reading()
    receiver.send(A, BOUNDS.session_bytes)
    held = sender.client.socket.buffered_bytes
    world.run_until(lambda: held() > BOUNDS.session_bytes * SOCKET_PART, 5)
    assert sender.session.full_since is None
    world.crash_redis()
    count = 3 * AWAY_BYTES // SIZE_BYTES
    for _ in range(count):
        sender.send(B, SIZE_BYTES)
        world.run_for(0.01)
    world.restart_redis()
    world.run_for(1)
    assert len(receiver.got) < count
    sender.client.start_reading()
    world.run_until(lambda: len(receiver.got) == count, 10)
    world.settle()


def test_a_sender_held_back_while_redis_was_out_of_memory(world: World) -> None:
    """Refusing the messages that wait makes room, as storing them does."""
    here = world.workers[0]
    sender = world.connect_live(here, A)
    sender.send(B)
    world.run_for(0.5)
    world.redis.fill_memory()
    for number in range(4):  # none is more than its share of a queue
        sender.send((2, f"{number}"), WAITING_BYTES // 4)
    world.run_for(0.05)
    assert here.worker is not None and here.worker.held_back
    last = sender.ping()
    world.run_until(lambda: last in sender.got, 10)
    world.settle()


def test_a_sender_that_does_not_read_its_refusals(world: World) -> None:
    """Refusals count towards a full socket like everything that is written to it."""
    here = world.workers[0]
    sender = world.connect_live(here, A)
    sender.client.stop_reading()
    world.redis.fill_memory()
    for _ in range(20):
        for _ in range(100):
            sender.send(B)
        world.run_for(0.2)
    world.run_for(3)
    assert sender.session.full_since is not None
    world.run_for(BOUNDS.back_pressure_s)
    assert sender.session.end_reason is SessionReason.BACK_PRESSURE
    world.settle()


def test_a_sender_of_large_pings_behind_a_batch(world: World) -> None:
    """Pongs repeat the contents of pings, and count while they wait in memory for Redis."""
    here = world.workers[0]
    sender = world.connect_live(here, A)
    world.redis_loop.freeze_for(5)
    sender.send(B)
    pings = []
    for _ in range(10):
        pings.append(sender.ping(NOTICE_BYTES // 2))
        world.run_for(0.01)
    assert sender.session.messages_in <= 3
    sender.client.receive_window_bytes = 1 << 20
    world.run_until(lambda: set(pings) <= set(sender.got), 20)
    world.settle()


def test_small_messages_count_for_what_they_cost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The overhead of a message counts: for a few bytes it is nearly all that the worker keeps."""
    monkeypatch.setattr(commit, "WAITING_BYTES", 50 * ITEM_BYTES)
    here = world.workers[0]
    sender = world.connect_live(here, A)
    sender.send(B)
    world.run_for(0.5)
    world.redis_loop.freeze_for(5)
    for _ in range(100):
        sender.send(B)
        world.run_for(0.01)
    assert sender.session.messages_in <= 51
    world.run_until(lambda: world.stream_length(B) == 101, 10)
    world.run_for(0.5)
    assert here.worker is not None and here.worker.commit.waiting_bytes == 0
    world.settle()
