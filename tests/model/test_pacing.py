"""Connections whose messages are refused are read more slowly for a while, in simulated time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from relay.queues import commit
from relay.sessions.options import SessionBounds
from relay.sessions.pacing import BURST_S, VAIN_PER_S
from tests.model.marks import ABANDONED
from tests.support.sim.world import Twin, World

pytestmark = ABANDONED

A, B, C = (1, None), (2, None), (3, None)
BOUNDS = SessionBounds(4_096, 4_000_000, idle_timeout_s=0)
READ = 100
"""Number of messages that a client sends at once."""


def answer(twin: Twin) -> object:
    return twin.send((0, None), request=False)


VAIN: dict[str, Callable[[Twin], object]] = {
    "ping": lambda twin: twin.ping(),
    "missing destination": lambda twin: twin.send((0, None)),
}


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7, workers=1, bounds=BOUNDS, receive_window_bytes=400_000, send_queue_bytes=400_000)
    gc.collect()


def flood(world: World, twins: list[Twin], seconds: float, send: Callable[[Twin], object]) -> None:
    for _ in range(int(seconds / 0.01)):
        for twin in twins:
            if len(twin.client.socket._inbound) < READ:  # as TCP blocks a client
                for _ in range(READ):
                    send(twin)
        world.run_for(0.01)


@pytest.mark.parametrize("kind", VAIN)
@pytest.mark.parametrize("connections", [1, 5])
def test_what_is_in_vain_has_a_rate(world: World, kind: str, connections: int) -> None:
    here = world.workers[0]
    twins = [world.connect_live(here, (1, f"{number}")) for number in range(connections)]
    flood(world, twins, 2.0, VAIN[kind])
    taken = sum(twin.session.messages_in for twin in twins)
    most = (2.0 + BURST_S) * VAIN_PER_S + 2 * READ * connections
    assert VAIN_PER_S < taken <= most
    assert all(twin.session.slowed for twin in twins)
    assert here.worker is not None
    assert here.worker.metrics.slowed >= connections and here.worker.metrics.slowed_s > 0
    world.settle()


def test_a_connection_whose_messages_pass_is_read_at_full_speed(world: World) -> None:
    here = world.workers[0]
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    flood(world, [sender], 1.0, VAIN["missing destination"])
    slowed = sender.session.slowed
    assert slowed
    world.run_for(1.0)
    before = len(receiver.got)
    for _ in range(20):
        for _ in range(READ):
            sender.send(B)
        world.run_for(0.01)
    world.run_for(0.2)
    assert len(receiver.got) - before == 20 * READ
    assert sender.session.slowed <= slowed + 1
    world.settle()


def test_others_are_read_as_before(world: World) -> None:
    here = world.workers[0]
    hostile, sender, receiver = (world.connect_live(here, key) for key in (A, B, C))
    for _ in range(50):
        for _ in range(READ):
            hostile.send((0, None))
        sender.send(C)
        world.run_for(0.01)
    assert sender.session.slowed == 0 < hostile.session.slowed
    assert len(receiver.got) == 50
    world.settle()


def test_a_twin_whose_answers_are_refused_is_read_on(world: World) -> None:
    """Refused answers do not slow the twin: it does not control whether they are read."""
    sender = world.connect_live(world.workers[0], A)
    flood(world, [sender], 1.0, answer)
    assert sender.session.messages_in >= 4 * VAIN_PER_S
    assert sender.session.slowed == 0


def test_refusals_of_one_read_are_one_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusals are in the order of the messages, with the pongs between them."""
    sender = world.connect_live(world.workers[0], A)
    reads: list[int] = []
    writes: list[int] = []
    send_messages, receive = sender.client.socket.send_messages, sender.session.messages_received

    def written(payloads: list[bytes]) -> int:
        writes.append(len(payloads))
        return send_messages(payloads)

    def read(messages: list[bytes]) -> None:
        reads.append(len(messages))
        receive(messages)

    monkeypatch.setattr(sender.client.socket, "send_messages", written)
    monkeypatch.setattr(type(sender.session), "messages_received", lambda _, each: read(each))
    expected = []
    for number in range(READ):
        if number % 10:
            expected.append(sender.send((0, None)).uid)
        else:
            expected.append(sender.ping())
    world.run_for(1)
    assert sender.got == expected
    assert writes == reads


def test_a_paused_connection_that_ends_leaves_nothing_behind(world: World) -> None:
    here = world.workers[0]
    sender = world.connect_live(here, A)
    flood(world, [sender], 1.0, VAIN["missing destination"])
    assert sender.session.sender is not None and sender.session.sender.slowed is not None
    sender.client.close()
    world.run_for(5)
    assert here.worker is not None and not here.worker.sessions
    assert here.worker.commit.waiting_bytes < commit.WAITING_BYTES
