"""Each source's share of a queue is counted exactly as long as its messages are there."""

from __future__ import annotations

import gc

from relay.queues import keys
from relay.queues.batch import QueuePolicy
from relay.queues.charging import LIFE_MORE_S
from tests.model.marks import ABANDONED
from tests.model.test_scenarios import A, B, burst
from tests.support.sim.world import World

pytestmark = ABANDONED


def test_a_share_of_what_expired_is_given_back() -> None:
    """A source that fills a queue each hour is not refused because of messages that expired."""
    world = World(7, workers=1, queue_policy=QueuePolicy(max_messages=400, retention_s=60))
    sender = world.connect_live(world.workers[0], A)
    for _ in range(12):
        burst(sender)
        world.run_for(0.2)
    share = keys.share("2")
    assert int(world.redis.run("HGET", share, "1")) > 0
    world.run_for(100)  # the share itself lives for 120 s
    assert world.stream_length(B) == 0
    assert world.redis.run("EXISTS", share) == 0
    gc.collect()


def test_a_share_never_outlives_its_queue() -> None:
    """A share outlives its queue at most by the time that the sweep takes to return it."""
    world = World(7, workers=1, queue_policy=QueuePolicy(retention_s=60))
    sender = world.connect_live(world.workers[0], A)
    burst(sender)  # this sets the queue's time to live, which is not renewed for a minute
    world.run_for(0.2)
    for _ in range(10):
        burst(sender)
        world.run_for(0.2)
    assert 0 < int(world.redis.run("TTL", keys.share("2"))) <= 120 + LIFE_MORE_S
    gc.collect()


def test_a_share_of_what_several_sessions_took_is_given_back() -> None:
    """The share is returned although no single session took enough to be counted."""
    world = World(7, workers=2, queue_policy=QueuePolicy(retention_s=60))
    here, there = world.living
    sender = world.connect_live(here, A)
    for _ in range(10):
        burst(sender)
        world.run_for(0.2)
    share = keys.share("2")
    assert int(world.redis.run("HGET", share, "1")) > 0
    oldest = [entry for entry, _ in world.redis.run("XRANGE", "stream:2", "-", "+")]
    world.redis.run("XDEL", "stream:2", *oldest[:60])  # as if another session took these, and died
    world.connect_live(there, B)
    world.run_until(lambda: world.stream_length(B) == 0, 5)
    world.run_for(0.5)
    assert world.redis.run("EXISTS", share) == 0
    gc.collect()
