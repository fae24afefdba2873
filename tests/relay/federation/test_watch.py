"""The periodic checks of the federation: undrained shards, and the reference relay's outbox."""

from __future__ import annotations

import contextlib

import pytest
from redis.exceptions import ResponseError

from relay.federation.take_over import take_over
from relay.federation.watch import idle_shards, watch
from relay.ops import background
from relay.queues import keys
from relay.queues.held import Held, unpack
from tests.support.envelopes import request
from tests.support.redis_servers import RedisServer


def test_shards_that_nobody_drains(site_redis: RedisServer) -> None:
    for shard in (1, 2, 5):
        site_redis.run("XADD", keys.outbox(shard), "*", "_", b"")
    site_redis.run("SET", keys.lease(2), "token")
    assert idle_shards() == [1, 5]


def test_drainers_are_started_whatever_another_program_left(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[object, ...]] = []
    monkeypatch.setattr(background, "start", lambda *task: started.append(task))
    site_redis.run("XADD", keys.outbox(3), "*", "_", b"")
    site_redis.run("SET", keys.REFERENCE_OUTBOX, "no stream")
    with pytest.raises(ResponseError):
        watch()
    assert started == [("federation.deliver", 3)]


def test_the_outbox_of_the_reference_relay_is_taken_over(valkey: RedisServer) -> None:
    payload = request((7, "sid"), (19, None)).SerializeToString()
    no_source = request((0, None), (19, None)).SerializeToString()
    for value in (payload, b"\xff\xff", b"", no_source):
        valkey.run("XADD", keys.REFERENCE_OUTBOX, "*", "_", value)
    with contextlib.closing(valkey.client()) as client:
        assert take_over(client) == 2
        assert take_over(client) == 0
    assert valkey.run("XLEN", keys.REFERENCE_OUTBOX) == 0
    first, second = (fields for _, fields in valkey.run("XRANGE", keys.outbox(19), "-", "+"))
    assert first == {b"_": payload, b"from": b"7:sid", b"for": b""}
    assert second[b"from"] == b""
    held = dict(valkey.run("HGETALL", keys.held("")))
    assert unpack(int(held[b"total"])) == Held(2, len(payload) + len(no_source))
    assert unpack(int(held[b"7"])).messages == unpack(int(held[b"0"])).messages == 1
