"""The cases that broke earlier drafts of the delivery model, each by name.

All run production workers in simulated time. `world.settle()` repairs the world, reads every queue
empty and lets the oracle judge the run. Each docstring states the rule whose loss the test detects.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from proto.rmb.types_pb2 import Envelope
from relay.queues import keys
from relay.queues.held import pack
from relay.sessions.guests import LINGER_S
from tests.model.marks import ABANDONED
from tests.support.sim.world import GUEST_TWIN, Twin, World

pytestmark = ABANDONED

A, B = (1, None), (2, None)


@pytest.fixture
def world() -> Iterator[World]:
    yield World(7)
    gc.collect()


def burst(sender: Twin, to: tuple[int, str | None] = B, count: int = 10) -> None:
    for _ in range(count):
        sender.send(to)


def caught_up(twin: Twin) -> bool:
    session = getattr(twin, "session", None)
    return session is not None and session.memory_mode


def claimed(twin: Twin) -> bool:
    session = getattr(twin, "session", None)
    return session is not None and session.epoch > 0


def test_evict_overtakes_the_reply_of_the_claim(world: World) -> None:
    """A newcomer remembers the highest evict since SUBSCRIBE: a lower claim ends at once."""
    here, there = world.living
    slow = world.connect(here, B)
    world.run_until(lambda: world.holder(B) is not None, 1)
    assert here.commit_link is not None and not claimed(slow)
    here.commit_link.stall(0.3)
    world.run_for(0.05)
    quick = world.connect(there, B)
    world.run_for(2)
    holder = world.holder(B)
    assert holder is not None
    winner = quick if quick.session.held else slow
    assert winner.session.held and holder.startswith(b"%d " % winner.session.epoch)
    assert not (slow.session.held and quick.session.held)
    world.settle()


def test_evict_while_the_pubsub_of_the_old_holder_is_away(world: World) -> None:
    """After a new subscription the worker compares every held epoch with the directory."""
    here, there = world.living
    old = world.connect_live(here, B)
    assert here.pubsub_link is not None
    here.pubsub_link.cut()
    new = world.connect(there, B)
    world.run_until(lambda: not old.session.held, 2)
    world.run_until(lambda: caught_up(new), 2)
    world.settle()


def test_a_newcomer_dies_between_claim_and_reply(world: World) -> None:
    """The next session waits for `released` no longer than the bound, and loses nothing."""
    here, there = world.living
    sender = world.connect_live(here, A)
    world.connect(there, B)
    world.run_until(lambda: world.holder(B) is not None, 1)
    world.kill_worker(there)
    burst(sender)
    receiver = world.connect(here, B)
    world.run_until(lambda: len(receiver.got) == 10, 2)
    world.settle()


def test_redis_loses_the_claim(world: World) -> None:
    """A holder that finds no directory entry enters itself again."""
    here, _ = world.living
    holder = world.connect_live(here, B)
    world.redis.run("HDEL", keys.SESSIONS, "2")
    world.run_until(lambda: world.holder(B) is not None, 20)
    assert holder.session.held
    world.settle()


def test_the_heartbeat_lapses_while_the_worker_lives(world: World) -> None:
    """Other workers bury it; when it finds its heartbeat missing, it compares all its sessions."""
    here, there = world.living
    holder = world.connect_live(here, B)
    sender = world.connect_live(there, A)
    world.faulty = True
    here.loop.freeze_for(45)
    world.run_for(40)
    burst(sender)
    world.run_for(10)
    assert holder.session.held == (world.holder(B) is not None)
    world.settle()


def test_sign_in_while_out_of_memory(world: World) -> None:
    """The claim script's first write is never refused, so queues can be drained."""
    here, _ = world.living
    sender = world.connect_live(here, A)
    burst(sender)
    world.run_for(0.5)
    world.redis.fill_memory()
    receiver = world.connect(here, B)
    world.run_until(lambda: len(receiver.got) == 10, 5)
    world.run_until(lambda: world.stream_length(B) == 0, 5)
    world.settle()


def test_refused_for_memory_after_a_while_and_told_before_the_pong(world: World) -> None:
    here, _ = world.living
    sender = world.connect_live(here, A)
    world.redis.fill_memory()
    burst(sender, count=3)
    sender.ping()
    world.run_for(4)
    assert world.oracle.outcomes["storage_full"] == 3
    world.settle()


def test_what_waits_behind_a_refused_batch_is_refused_with_it(world: World) -> None:
    """Messages behind a refused batch are refused too, so a partner relay's retry keeps order."""
    here, _ = world.living
    sender = world.connect_live(here, A)
    world.redis.fill_memory()
    burst(sender, count=3)
    world.run_for(1)
    burst(sender, count=4)
    world.run_until(lambda: world.oracle.outcomes["storage_full"] > 0, 2)
    world.redis.free_memory()
    world.run_for(1)
    assert world.oracle.outcomes["storage_full"] == 7
    burst(sender, count=2)
    world.run_until(lambda: world.stream_length(B) == 2, 2)
    world.settle()


def test_a_batch_refused_for_memory_and_then_accepted(world: World) -> None:
    """The batch keeps its number, and is sent again."""
    here, _ = world.living
    sender = world.connect_live(here, A)
    world.redis.fill_memory()
    burst(sender)
    world.run_for(0.5)
    world.redis.free_memory()
    world.run_until(lambda: world.stream_length(B) == 10, 2)
    world.settle()


@pytest.mark.parametrize("size_bytes", range(0, 700, 23))
@pytest.mark.parametrize("upwards", [True, False], ids=["request", "reply"])
def test_the_commit_connection_is_cut_in_a_batch(size_bytes: int, upwards: bool) -> None:
    """The number in Redis decides whether a batch was applied: nothing is lost or stored twice."""
    world = World(size_bytes)
    here, _ = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    link = here.commit_link
    assert link is not None
    (link.up if upwards else link.down).cut_after = size_bytes
    burst(sender, count=5)
    world.run_until(lambda: len(set(receiver.got)) == 5, 5)
    world.settle()


def test_two_cuts_in_a_row_with_the_old_connection_executed_late(world: World) -> None:
    """Old connections are killed by id before the number is read: no late batch can be applied."""
    here, _ = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    for _ in range(2):
        burst(sender, count=4)
        world.run_for(0.0005)
        link = here.commit_link
        if link is not None:
            link.half_open(0.5)
        world.run_for(0.05)
    world.run_until(lambda: len(set(receiver.got)) == 8, 5)
    world.settle()


def test_nobody_is_taken_for_dead_after_an_outage(world: World) -> None:
    """No worker counts as dead although all heartbeats are outdated and one worker returns late."""
    here, there = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(there, B)
    world.network.unreachable = True
    for process in (here, there):
        for link in process.links:
            link.cut()
    world.run_for(40)
    world.network.unreachable = False
    assert there.worker is not None
    there.loop.freeze_for(4)  # reconnects late
    for _ in range(100):
        world.run_for(0.1)
        assert world.holder(B) is not None
    burst(sender)
    world.run_until(lambda: len(receiver.got) == 10, 2)
    world.settle()


def test_a_worker_that_died_in_an_outage_is_found(world: World) -> None:
    """The dead worker is found once it has had time to come back."""
    here, there = world.living
    world.connect_live(here, A)
    world.connect_live(there, B)
    world.network.unreachable = True
    for process in (here, there):
        for link in process.links:
            link.cut()
    world.kill_worker(there)
    world.run_for(40)
    world.network.unreachable = False
    world.run_until(lambda: world.holder(B) is None, 45)
    world.settle()


def test_a_read_is_unanswered_at_a_cut(world: World) -> None:
    """Every session with an unanswered read reads again."""
    here, _ = world.living
    for _ in range(5):
        world.write_from_outside(B)
    receiver = world.connect(here, B)
    world.run_until(lambda: claimed(receiver), 2)
    assert here.commit_link is not None
    here.commit_link.cut()
    world.run_until(lambda: len(receiver.got) == 5, 5)
    world.settle()


def test_clean_close_and_quick_return_while_the_removal_waits(world: World) -> None:
    """The entry is released with the last removals, so nothing comes twice."""
    here, there = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    burst(sender)
    world.run_until(lambda: len(receiver.got) == 10, 2)
    receiver.client.close()
    again = world.connect(there, B)
    world.run_until(lambda: caught_up(again), 2)
    assert again.got == []
    world.settle()


def test_the_old_holder_is_slower_than_the_bound(world: World) -> None:
    """The newcomer continues after 500 ms; a wake in the late `released` delivers what is left."""
    here, there = world.living
    sender, _ = world.connect_live(there, A), world.connect_live(here, B)
    world.faulty = True
    here.loop.freeze_for(2)
    new = world.connect(there, B)
    burst(sender)
    world.run_until(lambda: len(new.got) == 10, 1)
    world.settle()


def test_three_connections_in_a_row(world: World) -> None:
    """A newcomer that ends while it waits finishes that wait before it sends `released`."""
    here, there = world.living
    sender = world.connect_live(there, A)
    first = world.connect_live(here, B)
    first.client.stop_reading()
    burst(sender, count=40)
    world.run_for(0.2)
    second = world.connect(there, B)
    world.run_for(0.01)
    third = world.connect(here, B)
    second.client.reset()
    world.run_until(lambda: caught_up(third), 3)
    world.settle()


def test_a_batch_is_found_applied_after_its_session_moved(world: World) -> None:
    """If a session that was local at the decision is no longer held, its wake is published then."""
    here, there = world.living
    sender, _ = world.connect_live(here, A), world.connect_live(here, B)
    assert here.commit_link is not None
    here.commit_link.down.cut_after = 0
    burst(sender)
    moved = world.connect(there, B)
    world.run_until(lambda: len(set(moved.got)) + world.stream_length(B) >= 10, 5)
    world.settle()


def test_a_worker_is_killed_with_a_buffered_batch(world: World) -> None:
    """A worker that sees the heartbeat gone kills the connection, then re-reads held streams."""
    here, there = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(there, B)
    burst(sender)
    world.run_for(0.0004)
    world.kill_worker(here, late_s=5)
    world.run_for(60)
    assert world.stream_length(B) == 0 and receiver.session.held
    world.settle()


def test_a_removal_alone_is_lost_at_a_cut(world: World) -> None:
    """A removal is kept until Redis answers it."""
    here, _ = world.living
    sender, receiver = world.connect_live(here, A), world.connect_live(here, B)
    burst(sender)
    world.run_until(lambda: len(receiver.got) == 10, 2)
    if here.commit_link is not None:
        here.commit_link.cut()
    world.run_until(lambda: world.stream_length(B) == 0, 5)
    assert len(receiver.got) == 10
    world.settle()


def test_a_reset_with_much_in_the_transport_buffer(world: World) -> None:
    """Unacknowledged messages stay in the stream, though the dead transport's buffer reads 0."""
    here, there = world.living
    sender, receiver = world.connect_live(there, A), world.connect_live(here, B)
    receiver.client.stop_reading()
    for _ in range(20):
        sender.send(B, 900)
    world.run_for(0.5)
    receiver.client.reset()
    again = world.connect(there, B)
    world.run_until(lambda: len(set(receiver.got) | set(again.got)) == 20, 5)
    world.settle()


def test_the_check_finds_what_nobody_announced(world: World) -> None:
    """The check finds only entries without a wake, within 17 s."""
    here, _ = world.living
    receiver = world.connect_live(here, B)
    message = world.write_from_outside(B)
    world.run_for(20)
    assert message is not None and len(receiver.got) == 1
    silent = world.envelope((7_000, None), B, 10, request=False)
    world.oracle.sent(world._foreign, silent)
    world.faulty = True
    world.redis.run("XADD", "stream:2", "*", "_", silent.SerializeToString())
    world.run_until(lambda: len(receiver.got) == 2, 17)
    worker = here.worker
    assert worker is not None and worker.metrics.check_found == 1
    world.settle()


def test_a_guest_that_leaves(world: World) -> None:
    """Messages go to a guest's local session; after the last one the rest goes to its own relay."""
    here, there = world.living
    guest_key = (GUEST_TWIN, None)
    sender = world.connect_live(there, A)
    guest = world.connect_live(here, guest_key)
    world.run_for(1.5)
    burst(sender, guest_key, 3)
    world.run_until(lambda: len(guest.got) == 3, 2)
    guest.client.stop_reading()
    for _ in range(20):
        sender.send(guest_key, 900)
    world.run_for(0.5)
    guest.client.reset()
    world.run_for(8)
    assert world.stream_length(guest_key) == 0
    outbox = int(world.redis.run("XLEN", keys.outbox(GUEST_TWIN)))
    assert outbox >= 20 - (len(guest.got) - 3) > 0
    world.settle()


def _guest_with_mail(world: World, count: int) -> tuple[Twin, list[str]]:
    """Return a guest that has stopped reading, and the uids of the messages sent to it.

    The sender is a twin at another worker.
    """
    here, there = world.living
    sender = world.connect_live(there, A)
    guest = world.connect_live(here, (GUEST_TWIN, None))
    world.run_for(1.5)
    guest.client.stop_reading()
    sent = [sender.send(guest.key, 900).uid for _ in range(count)]
    world.run_for(0.5)
    return guest, sent


@pytest.mark.parametrize("after_ms", range(2, 14))
def test_a_guest_that_returns_while_its_mail_leaves(after_ms: int) -> None:
    """Each message reaches either the guest or the outbox, never both."""
    world = World(3)
    guest, sent = _guest_with_mail(world, 150)
    guest.client.reset()
    world.run_for(LINGER_S + after_ms / 1000)
    again = world.connect(guest.process, guest.key)
    world.run_until(lambda: world.stream_length(guest.key) == 0, 10)
    world.run_for(8)
    entries = world.redis.run("XRANGE", keys.outbox(GUEST_TWIN), "-", "+")
    moved = [Envelope.FromString(fields[1]).uid for _, fields in entries]
    assert sorted({*guest.got, *moved, *again.got}) == sorted(sent)
    assert not set(moved) & set(again.got)
    assert len(moved) == len(set(moved))
    world.settle()
    gc.collect()


@pytest.mark.parametrize("why", ["out of memory", "full outbox"])
def test_the_mail_of_a_guest_that_has_to_wait_is_kept(why: str) -> None:
    """None of the messages is dropped or counted as dropped."""
    world = World(1)
    guest, _ = _guest_with_mail(world, 100)
    guest.client.reset()
    account, outbox = keys.held("elsewhere.test"), keys.outbox(GUEST_TWIN)
    if why == "full outbox":
        world.redis.run("HSET", account, "total", str(pack(100_000, 0)))
    else:
        world.redis.fill_memory()
    world.run_for(9)
    assert world.stream_length(guest.key) > 0
    world.redis.run("DEL", account)
    world.redis.free_memory()
    world.run_for(4)
    assert world.stream_length(guest.key) == 0
    assert int(world.redis.run("XLEN", outbox)) >= 90
    for process in world.living:
        assert process.worker is not None
        assert not +process.worker.metrics.drops
    world.settle()
    gc.collect()


def test_a_guest_that_leaves_twice_at_once() -> None:
    """The guest's messages are moved to the outbox once."""
    world = World(1)
    guest, _ = _guest_with_mail(world, 60)
    again = world.connect(guest.process, guest.key)
    again.client.stop_reading()
    world.run_for(0.1)
    again.client.reset()
    guest.client.reset()
    world.run_for(15)
    entries = world.redis.run("XRANGE", keys.outbox(GUEST_TWIN), "-", "+")
    left = [Envelope.FromString(fields[1]).uid for _, fields in entries]
    assert len(left) == len(set(left)) >= 50
    world.settle()
    gc.collect()
