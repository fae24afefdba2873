"""How sessions end whose client has not acknowledged all that was written, in simulated time."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from proto.rmb.reasons import SessionReason
from relay.sessions.takeover import DRAIN_WAIT_S
from tests.model.marks import ABANDONED
from tests.support.sim.socket import CLOSE_TIMEOUT_S
from tests.support.sim.world import Twin, World

pytestmark = ABANDONED

A, B = (1, None), (2, None)
LATE_S = 1.0
assert DRAIN_WAIT_S < LATE_S < CLOSE_TIMEOUT_S


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7)
    gc.collect()


def behind(world: World) -> Twin:
    """A receiver that has stopped reading with much in its kernel's and the relay's buffers."""
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


def test_a_newcomer_does_not_wait_for_a_slow_reader(world: World) -> None:
    """Also where the reader's session had ended before, and waited for its socket."""
    receiver = behind(world)
    here, there = world.living
    assert here.worker is not None
    here.worker.end(receiver.session, SessionReason.DRAINED)
    world.run_for(LATE_S / 2)
    again = world.connect(there, B)
    world.run_until(lambda: len(again.got) > 0, 2 * DRAIN_WAIT_S)
    world.settle()
