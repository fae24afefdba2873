"""Estimates of how long messages wait, from what is known about their queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relay.ops.redis_client import client
from relay.queues.ages import EDGES_S, Survey, count
from relay.queues.walking import Extent
from tests.relay.queues.mail import fill
from tests.support.redis_servers import RedisServer

NOW = 1_000_000.0


def steps(*extents: Extent) -> list[int]:
    return [step.messages for step in count(extents, NOW).steps]


def test_messages_lie_evenly_between_the_first_and_the_last() -> None:
    assert steps(Extent(100, NOW - 110, NOW - 10)) == [0, 50, 50, 0, 0, 0, 0]
    assert steps(Extent(1, NOW - 10, NOW - 10)) == [0, 1, 0, 0, 0, 0, 0]
    assert steps(Extent(3, NOW - 9000, NOW - 8000)) == [0, 0, 0, 0, 0, 0, 3]
    assert steps(Extent(2, NOW + 5, NOW + 5)) == [2, 0, 0, 0, 0, 0, 0], "a clock ahead of ours"


def test_sums() -> None:
    found = count([Extent(2, NOW - 5, NOW), Extent(3, NOW - 50, NOW - 40)], NOW)
    assert (found.queues, found.messages, found.oldest_at) == (2, 5, NOW - 50)
    assert count([], NOW).oldest_at == 0


@given(st.integers(1, 10_000), st.floats(0, 8000), st.floats(0, 8000))
def test_no_message_is_counted_twice(messages: int, one_s: float, other_s: float) -> None:
    extent = Extent(messages, NOW - max(one_s, other_s), NOW - min(one_s, other_s))
    assert abs(sum(steps(extent)) - messages) <= len(EDGES_S) / 2


def test_a_walk_is_remembered(site_redis: RedisServer) -> None:
    survey = Survey()
    fill(site_redis, "7", 3)
    fill(site_redis, "8:x", 2)
    found = survey.look(client())
    assert (found.queues, found.messages) == (2, 5)
    fill(site_redis, "9", 1)
    assert survey.look(client()) is found
