"""Clients that read little or nothing: what they hold and what they cost, in simulated time."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from proto.rmb.reasons import SessionReason
from relay.sessions.options import SessionBounds
from relay.sessions.session import INFLIGHT_PART, SOCKET_PART
from relay.sessions.upkeep import CHECK_S
from tests.model.marks import ABANDONED
from tests.support.sim.world import Twin, World

pytestmark = ABANDONED

A, B = (1, None), (2, None)
BOUNDS = SessionBounds(64, 40_000, back_pressure_s=60, idle_timeout_s=0)
SIZE_BYTES = 1_000
SWEEP = [b"COUNT", b"1"]


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7, workers=1, bounds=BOUNDS)
    gc.collect()


def stuck(world: World, count: int = 100) -> tuple[Twin, Twin]:
    """Return a sender, and a receiver that has stopped reading and whose buffers are full."""
    here = world.workers[0]
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    receiver.client.stop_reading()
    for _ in range(count):
        sender.send(B, SIZE_BYTES)
    world.run_until(lambda: receiver.session.full_since is not None, 5)
    return sender, receiver


def sip(world: World, twin: Twin) -> None:
    """Read what has arrived, some kilobytes, and no more."""
    twin.client.start_reading()
    world.run_for(0.001)
    twin.client.stop_reading()


def test_a_large_batch_does_not_overfill_a_socket_that_is_behind(world: World) -> None:
    """The socket stays within its bound if one turn brings far more than the session may hold."""
    sender, receiver = stuck(world)
    world.run_for(1)
    held = receiver.client.socket.buffered_bytes()
    assert BOUNDS.session_bytes * SOCKET_PART / 2 < held <= BOUNDS.session_bytes * SOCKET_PART
    assert not receiver.session.memory_mode
    receiver.client.start_reading()
    world.run_until(lambda: len(receiver.got) == 100, 10)
    sender.send(B)
    world.settle()


def test_a_message_larger_than_all_room_goes_to_a_socket_that_is_behind(world: World) -> None:
    """A large message need not wait for an empty socket, which would cause pauses between them."""
    here = world.workers[0]
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    receiver.client.stop_reading()
    sender.send(B, 12_000)
    world.run_until(lambda: receiver.client.socket.buffered_bytes() > 0, 5)
    sender.send(B, 2 * BOUNDS.session_bytes)
    world.run_for(0.05)
    assert receiver.client.socket.buffered_bytes() > BOUNDS.session_bytes
    world.settle()


def test_the_stream_of_a_full_session_is_not_read_by_the_check(world: World) -> None:
    """The check skips full sessions.

    Reading a thousand full queues every few seconds would take gigabytes, to find nothing new.
    """
    stuck(world)
    commands: Counter[bytes] = Counter()
    handle = world.redis.handle

    def counted(connection: object, argv: list[bytes]) -> None:
        # The sweep for old entries reads the first one of each stream, independently of the check.
        if argv[0].upper() == b"XRANGE" and argv[1] == b"stream:2" and argv[-2:] != SWEEP:
            commands[argv[0]] += 1
        handle(connection, argv)  # type: ignore[arg-type]

    world.redis.handle = counted  # type: ignore[method-assign]
    world.run_for(2 * CHECK_S)
    assert not commands
    world.settle()


def test_a_stalled_socket_is_looked_at_about_once_a_second(world: World) -> None:
    _, receiver = stuck(world)
    world.run_for(3)
    looks = 0
    acknowledged = receiver.client.socket.acknowledged

    def counted() -> int:
        nonlocal looks
        looks += 1
        return acknowledged()

    receiver.client.socket.acknowledged = counted  # type: ignore[method-assign]
    world.run_for(10)
    assert 5 <= looks <= 15
    receiver.client.start_reading()
    world.run_until(lambda: world.stream_length(B) == 0, 5)
    assert looks > 15
    world.settle()


def test_a_slow_reader_is_not_closed_and_one_that_stands_still_is(world: World) -> None:
    """A client that reads a few kilobytes now and then stays open, until it stops reading.

    What it reads is less than half its room in a minute.
    """
    _, receiver = stuck(world, 200)
    for _ in range(8):
        world.run_for(20)
        sip(world, receiver)
    assert receiver.session.end_reason is None
    world.run_for(BOUNDS.back_pressure_s + 2)
    assert receiver.session.end_reason is SessionReason.BACK_PRESSURE
    world.settle()


def test_a_page_is_read_for_half_the_room_and_not_for_every_message(world: World) -> None:
    """A page is not read for one message only: all others in it would have to be read again."""
    _, receiver = stuck(world, 200)
    read = 0
    handle = world.redis.handle

    def counted(connection: object, argv: list[bytes]) -> None:
        nonlocal read
        if argv[0].upper() == b"XRANGE" and argv[1] == b"stream:2":
            read += int(argv[-1])
        handle(connection, argv)  # type: ignore[arg-type]

    world.redis.handle = counted  # type: ignore[method-assign]
    while len(receiver.got) < 180:
        sip(world, receiver)
        world.run_for(0.2)
    assert read < 2.5 * 180
    world.settle()


def test_what_is_on_its_way_is_bounded_where_the_kernel_takes_everything() -> None:
    """Unacknowledged small messages to a client that does not read are bounded.

    None of them waits in the relay, but the relay keeps track of each.
    """
    world = World(7, workers=1, bounds=BOUNDS, send_queue_bytes=1 << 20)
    here = world.workers[0]
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    receiver.client.stop_reading()
    most = INFLIGHT_PART * BOUNDS.session_messages
    burst = 64
    count = most + 2 * burst
    for _ in range(count // burst):
        for _ in range(burst):
            sender.send(B)
        world.run_for(0.05)
    assert receiver.client.socket.buffered_bytes() == 0
    assert most <= len(receiver.session.inflight) < most + burst
    receiver.client.start_reading()
    world.run_until(lambda: len(receiver.got) == count, 10)
    world.settle()


def test_a_catch_up_of_large_messages_begins_with_a_small_page(world: World) -> None:
    """A client that reconnects repeatedly does not make the relay read its whole queue again."""
    here = world.workers[0]
    sender = world.connect_live(here, A)
    count = 30
    for _ in range(count):
        sender.send(B, BOUNDS.session_bytes)
    world.run_until(lambda: world.stream_length(B) == count, 5)
    read = 0
    handle = world.redis.handle

    def counted(connection: object, argv: list[bytes]) -> None:
        nonlocal read
        if argv[0].upper() == b"XRANGE" and argv[1] == b"stream:2":
            read += int(argv[-1])
        handle(connection, argv)  # type: ignore[arg-type]

    world.redis.handle = counted  # type: ignore[method-assign]
    twin = world.connect(here, B)
    twin.client.stop_reading()
    world.run_until(lambda: read > 0, 2)
    world.run_for(0.5)
    assert read <= 4
    twin.client.reset()
    world.settle()
