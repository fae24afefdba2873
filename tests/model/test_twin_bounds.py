"""Bounds of what may wait from one source, and for one twin, over all queues; in simulated time."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator

import pytest

from proto.rmb.reasons import MessageReason
from relay.queues import keys
from relay.queues.batch import QueuePolicy
from relay.queues.charging import QUEUE_BYTES, TwinBounds
from tests.model.marks import ABANDONED
from tests.model.test_scenarios import A, burst
from tests.support.sim.world import Twin, World

pytestmark = ABANDONED

SOURCE, TO = 1, 2
FIELDS = ("messages", "bytes", "queues", "unknown")
SOME = TwinBounds(messages=100, size_bytes=1 << 20, queues=50, unknown_queues=20)


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


def bounded(twin: TwinBounds = SOME) -> World:
    return World(7, queue_policy=QueuePolicy(400, retention_s=60, twin=twin))


def waits(world: World, name: str) -> list[int]:
    return [int(value or 0) for value in world.redis.run("HMGET", name, *FIELDS)]


def send_each(world: World, sender: Twin, numbers: range, twin: int | None = TO) -> None:
    """Send a message to each of these sessions of a twin, or of these twins, in small groups."""
    for number in numbers:
        sender.send((number, None) if twin is None else (twin, f"s{number}"))
        if number % 5 == 4:
            world.run_for(0.05)
    world.run_for(0.5)


def refusals(world: World) -> dict[str, int]:
    found: dict[str, int] = {}
    for process in world.living:
        assert process.worker is not None
        for reason, count in process.worker.metrics.drops.items():
            found[str(reason)] = found.get(str(reason), 0) + count
    return found


def test_sessions_that_never_signed_in_have_a_bound_of_their_own() -> None:
    world = bounded()
    here, there = world.living
    for number in (900, 901):
        world.connect_live(there, (TO, f"s{number}")).client.reset()
    world.run_for(2)
    sender = world.connect_live(here, A)
    send_each(world, sender, range(60))
    assert 20 <= len(world.streams()) <= 30
    assert refusals(world)[MessageReason.TWIN_FULL] == 60 - len(world.streams())
    assert waits(world, keys.received(TO))[2:] == [len(world.streams())] * 2
    before = refusals(world)
    send_each(world, sender, range(900, 902))
    sender.send((TO, "s3"))
    world.run_for(0.5)
    assert refusals(world) == before, "these have signed in once, or wait for more already"


def test_a_source_has_something_in_so_many_queues_at_most() -> None:
    world = bounded()
    sender = world.connect_live(world.living[0], A)
    send_each(world, sender, range(100, 200), twin=None)
    assert 50 <= len(world.streams()) <= 60
    assert refusals(world)[MessageReason.SOURCE_FULL] == 100 - len(world.streams())
    other = world.connect_live(world.living[1], (3, None))
    send_each(world, other, range(300, 320), twin=None)
    assert refusals(world)[MessageReason.SOURCE_FULL] == 100 - (len(world.streams()) - 20)
    before = refusals(world)
    sender.send((100, None))
    world.run_for(0.5)
    assert refusals(world) == before, "it has something there already"


@pytest.mark.parametrize("bound", ["messages", "size_bytes"])
def test_all_queues_of_a_twin_together_have_a_bound(bound: str) -> None:
    twin = TwinBounds(messages=100) if bound == "messages" else TwinBounds(size_bytes=30_000)
    world = bounded(twin)
    for source in range(10, 20):
        sender = world.connect_live(world.living[source % 2], (source, None))
        for number in range(4):
            burst(sender, (TO, f"s{number}"), 6)
            world.run_for(0.1)
    messages, size_bytes, *_ = waits(world, keys.received(TO))
    if bound == "messages":
        assert 100 <= messages < 140
    else:
        assert 30_000 <= size_bytes < 40_000
    assert refusals(world)[MessageReason.TWIN_FULL] > 20


@pytest.mark.parametrize("bound", ["messages", "size_bytes"])
def test_one_source_leaves_room_for_others_in_the_queues_of_a_twin(bound: str) -> None:
    twin = TwinBounds(messages=100) if bound == "messages" else TwinBounds(size_bytes=100_000)
    world = bounded(twin)
    here, there = world.living
    greedy = world.connect_live(here, A)
    for number in range(30):
        burst(greedy, (TO, f"s{number}"), 5)
        world.run_for(0.1)
    assert set(refusals(world)) == {MessageReason.SOURCE_SHARE}
    before = refusals(world)
    other = world.connect_live(there, (3, None))
    burst(other, (TO, None), 5)
    world.run_for(0.5)
    assert refusals(world) == before
    world.redis.run("DEL", *world.streams())  # as if all of it was read
    world.run_for(35)
    burst(greedy, (TO, "s0"), 5)
    world.run_for(0.5)
    assert refusals(world) == before


def test_sessions_that_do_not_read_fill_no_more_than_their_twin_may_have() -> None:
    world = bounded(TwinBounds(messages=300))
    here, there = world.living
    for number in range(6):
        world.connect_live(there, (TO, f"s{number}")).client.stop_reading()
    senders = [world.connect_live(here, (source, None)) for source in range(10, 20)]
    for _ in range(8):
        for sender in senders:
            for number in range(6):
                burst(sender, (TO, f"s{number}"), 5)
            world.run_for(0.1)
    assert refusals(world)[MessageReason.TWIN_FULL] > 0
    waiting = sum(world.redis.run("XLEN", name) for name in world.streams())
    assert waiting < 6 * 200, "each queue has a bound of 400"


def test_sessions_that_read_are_reached_though_their_twins_are_at_a_bound() -> None:
    world = bounded()
    here, there = world.living
    receiver = world.connect_live(there, (TO, "reads"))
    sender = world.connect_live(here, A)
    send_each(world, sender, range(60))
    assert refusals(world)[MessageReason.TWIN_FULL] > 0
    send_each(world, sender, range(100, 160), twin=None)
    assert refusals(world)[MessageReason.SOURCE_FULL] > 0
    for _ in range(20):
        burst(sender, (TO, "reads"))
        world.run_for(0.3)
    assert len(receiver.got) == 200


def test_what_was_read_is_given_back() -> None:
    world = bounded()
    here, there = world.living
    sender = world.connect_live(here, A)
    send_each(world, sender, range(40))
    assert waits(world, keys.sent(SOURCE))[0] > 0
    for number in range(40):
        world.connect_live(there, (TO, f"s{number}"))
    world.run_for(1)
    for name in (keys.sent(SOURCE), keys.received(TO)):
        assert world.redis.run("EXISTS", name) == 0
    before = refusals(world)
    world.run_for(0.5)
    sender.send((TO, "another"))
    world.run_for(0.5)
    assert refusals(world) == before


def test_what_expired_is_given_back() -> None:
    world = bounded()
    sender = world.connect_live(world.living[0], A)
    send_each(world, sender, range(10))
    world.run_for(100)
    for name in (keys.sent(SOURCE), keys.received(TO), keys.share(f"{TO}:s0")):
        assert world.redis.run("EXISTS", name) == 0


def test_a_part_of_a_queue_that_expired_is_given_back() -> None:
    world = bounded()
    sender = world.connect_live(world.living[0], A)
    for _ in range(3):
        burst(sender, (TO, None))
        world.run_for(25)
    world.run_for(20)
    left = world.stream_length((TO, None))
    assert 0 < left < 30
    assert waits(world, keys.sent(SOURCE))[0] == waits(world, keys.received(TO))[0] == left


def test_pairs_of_sessions_at_two_workers_are_not_charged() -> None:
    """Queues that are soon empty again are not charged, except while they are long for a moment."""
    world = bounded(TwinBounds(messages=300))
    here, there = world.living
    receiver = world.connect_live(there, (TO, None))
    sender = world.connect_live(here, A)
    for _ in range(20):
        burst(sender, (TO, None), 80)
        world.run_for(0.4)
    world.run_until(lambda: len(receiver.got) == 1_600, 30)
    assert not refusals(world)
    assert waits(world, keys.sent(SOURCE))[0] <= 80


def test_a_new_queue_is_charged_what_it_takes() -> None:
    world = bounded()
    sender = world.connect_live(world.living[0], A)
    send_each(world, sender, range(3))
    size_bytes = waits(world, keys.received(TO))[1]
    assert 3 * QUEUE_BYTES < size_bytes < 3 * QUEUE_BYTES + 1_000


def test_bounds_of_one_twin() -> None:
    world = bounded()
    here = world.living[0].worker
    assert here is not None
    here.room.change({SOURCE: TwinBounds(queues=4), TO: TwinBounds()})
    sender = world.connect_live(world.living[0], A)
    send_each(world, sender, range(20))
    assert 4 <= len(world.streams()) <= 10
    assert set(refusals(world)) == {MessageReason.SOURCE_FULL}


def test_a_twin_that_was_at_a_bound_is_forgotten() -> None:
    world = bounded()
    here = world.living[0].worker
    assert here is not None
    sender = world.connect_live(world.living[0], A)
    send_each(world, sender, range(60))
    assert here.room._sources and here.room._twins
    world.run_for(200)
    assert not here.room._sources and not here.room._twins


def test_twins_near_a_bound_are_named_by_the_sweep() -> None:
    world = bounded(TwinBounds(queues=20, unknown_queues=1_000))
    sender = world.connect_live(world.living[0], A)
    send_each(world, sender, range(16))
    world.run_for(35)
    named = json.loads(world.redis.run("GET", keys.FULLEST_TWINS))
    assert sorted((name, percent) for percent, name, _ in named) == [
        (keys.sent(SOURCE), 80.0),
        (keys.received(TO), 80.0),
    ]


def test_a_burst_overruns_no_bound() -> None:
    """Messages under way count; one that lacks room only because of them waits instead of being
    refused.
    """
    world = bounded()
    here, there = world.living
    sender = world.connect_live(here, A)
    for number in range(60):
        sender.send((TO, f"s{number}"))
    pong = sender.ping()
    world.run_until(lambda: pong in sender.got, 10)
    assert len(world.streams()) == 20
    assert refusals(world)[MessageReason.TWIN_FULL] == 40
    for number in range(500, 530):
        world.connect_live(there, (3, f"s{number}"))
    before = refusals(world)
    for number in range(500, 530):
        sender.send((3, f"s{number}"))
    pong = sender.ping()
    world.run_until(lambda: pong in sender.got, 10)
    assert refusals(world) == before, "they are connected elsewhere"
