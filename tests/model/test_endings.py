"""Ends of sessions whose client has not acknowledged all that was written, in simulated time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from proto.rmb.reasons import SessionReason
from relay.queues import keys
from relay.sessions.takeover import DRAIN_WAIT_S
from tests.model.marks import ABANDONED
from tests.support.sim.keyspace import COMMANDS
from tests.support.sim.redis import ServerConnection
from tests.support.sim.socket import CLOSE_TIMEOUT_S
from tests.support.sim.values import ReplyError
from tests.support.sim.world import GUEST_TWIN, Twin, World

pytestmark = ABANDONED

A, B = (1, None), (2, None)
LATE_S = 1.0
assert DRAIN_WAIT_S < LATE_S < CLOSE_TIMEOUT_S


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7)
    gc.collect()


def behind(world: World) -> Twin:
    """Return a receiver that has stopped reading, with full buffers in its kernel and the relay."""
    here, there = world.living
    sender, receiver = world.connect_live(there, A), world.connect_live(here, B)
    receiver.client.stop_reading()
    for _ in range(10):
        sender.send(B, 600)
    world.run_until(lambda: world.stream_length(B) == 10, 2)
    world.run_for(0.5)
    assert 0 < len(receiver.got) < 10
    return receiver


@pytest.mark.parametrize("reason", [SessionReason.DRAINED, SessionReason.KICKED])
def test_what_a_slow_reader_reads_while_its_socket_closes_does_not_come_again(
    world: World, reason: SessionReason
) -> None:
    receiver = behind(world)
    here, there = world.living
    assert here.worker is not None
    here.worker.end(receiver.session, reason)
    world.run_for(LATE_S)
    receiver.client.start_reading()
    world.run_for(CLOSE_TIMEOUT_S)
    first = list(receiver.got)
    again = world.connect_live(there, B)
    world.run_until(lambda: len(first) + len(again.got) >= 10, 2)
    world.run_for(0.5)
    assert sorted(first + again.got) == sorted({*first, *again.got})
    world.settle()


def test_a_session_that_is_over_is_freed_without_the_collector(world: World) -> None:
    """Ended sessions form no cycle: else those of a rush would stay until a full collection."""
    here, there = world.living
    sender, receiver = world.connect_live(there, A), world.connect_live(here, B)
    sender.send(B)
    world.run_until(lambda: len(receiver.got) == 1, 2)
    session = weakref.ref(receiver.session)
    gc.disable()
    try:
        receiver.client.reset()
        world.run_for(2)
        assert world.holder(B) is None
        del receiver.session
        assert session() is None
    finally:
        gc.enable()


def test_a_newcomer_does_not_wait_for_a_slow_reader(world: World) -> None:
    """A newcomer gets messages even if the reader's session had ended and waited for its socket."""
    receiver = behind(world)
    here, there = world.living
    assert here.worker is not None
    here.worker.end(receiver.session, SessionReason.DRAINED)
    world.run_for(LATE_S / 2)
    again = world.connect(there, B)
    world.run_until(lambda: len(again.got) > 0, 2 * DRAIN_WAIT_S)
    world.settle()


def test_what_redis_refuses_to_release_is_released_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused release is retried.

    Otherwise the session would stay signed in as long as its worker lives, and a guest's messages
    would never leave.
    """
    here, there = world.living
    sender = world.connect_live(there, A)
    guest_key = (GUEST_TWIN, None)
    receiver, guest = world.connect_live(here, B), world.connect_live(here, guest_key)
    world.run_for(2)
    check = world.redis._check
    full = True

    def refusing(connection: ServerConnection, name: str, argv: list[bytes]) -> Any:
        known = COMMANDS.get(name)
        if full and (name == "eval" or (known is not None and known.write)):
            raise ReplyError("MISCONF it cannot save")
        return check(connection, name, argv)

    monkeypatch.setattr(world.redis, "_check", refusing)
    receiver.client.reset()
    guest.client.reset()
    world.run_for(4)
    full = False
    world.run_for(12)
    assert [world.holder(B), world.holder(guest_key)] == [None, None]
    sender.send(guest_key)
    world.run_for(1)
    assert world.redis.run("XLEN", keys.outbox(GUEST_TWIN)) == 1
