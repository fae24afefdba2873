"""Keys that move between workers while messages and replies of Redis are late or lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from redispipe.pipe import RedisPipe
from tests.proto.sbd.pairs import Identity
from tests.relay.sbd.workers import heard, until, workers
from tests.support.redis_servers import RedisServer

ONE, TWO = Identity(1), Identity(2)


def holder(redis: RedisServer, identity: Identity) -> str:
    """Return the worker that the directory names for a key."""
    entry = redis.run("HGET", "sbd:keys", identity.key)
    return entry.split()[0].decode() if entry else ""


async def test_a_key_is_where_it_was_proven_last(valkey: RedisServer) -> None:
    async with workers(valkey) as (a, b):
        sender = await a.connected(TWO)
        for worker in (a, b, b, a, b):
            newest = await worker.connected(ONE)
            await heard(a, b)
            sender.send(ONE.key, b"x")
            await until(newest.received)
        assert sum(ONE.key in worker.switch.keys for worker in (a, b)) == 1


async def test_late_news_of_a_take_over_end_no_newer_connection(valkey: RedisServer) -> None:
    """The newest connection stays open although its worker hears late of an earlier take-over.

    The key goes to another worker and returns before its first worker has heard of that.
    """
    async with workers(valkey) as (a, b):
        first = await a.connected(ONE)
        a.hub_link.pause_reading()
        second = await b.connected(ONE)
        third = await a.connected(ONE)
        a.hub_link.resume_reading()
        await until(lambda: not second.line.open)
        await heard(a, b)
        assert (first.line.open, third.line.open) == (False, True)
        assert holder(valkey, ONE) == "a"


async def test_a_take_over_that_is_told_before_the_reply_to_a_claim(valkey: RedisServer) -> None:
    async with workers(valkey) as (a, b):
        a.pipe_link.pause_reading()
        first = a.connect(ONE)
        await until(lambda: holder(valkey, ONE) == "a")
        told: list[bytes] = []
        a.crossing._hub._listeners[b"sbd:to:a"].append(told.append)
        second = await b.connected(ONE)
        await until(lambda: told)
        a.pipe_link.resume_reading()
        await until(lambda: not first.line.open)
        await heard(a, b)
        assert second.line.open
        assert not first.ready
        assert ONE.key not in a.switch.keys


async def test_a_newcomer_that_is_gone_at_once_replaces_as_well(valkey: RedisServer) -> None:
    async with workers(valkey, 1) as (a,):
        first = await a.connected(ONE)
        second = a.connect(ONE)
        second.leave()
        await until(lambda: not first.line.open)
        await heard(a)
        assert holder(valkey, ONE) == ""


async def test_packets_that_wait_for_an_answer_come_first(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets keep their order although the key arrives here before its look-up is answered."""
    held: list[Callable[[], None]] = []
    submit = RedisPipe.submit

    def late(pipe: Any, payload: bytes, callback: Any, *rest: Any, **more: Any) -> None:
        if b"HGET" in payload[:20]:
            submit(pipe, payload, lambda reply: held.append(lambda: callback(reply)))
        else:
            submit(pipe, payload, callback, *rest, **more)

    monkeypatch.setattr(RedisPipe, "submit", late)
    async with workers(valkey, 1) as (a,):
        sender = await a.connected(TWO)
        receiver = a.connect(ONE)
        sender.send(ONE.key, b"1", b"2")
        await until(lambda: receiver.ready and held)
        sender.send(ONE.key, b"3")
        held[0]()
        assert [packet.payload for packet in receiver.received()] == [b"1", b"2", b"3"]
        assert not a.switch.counts.lost


async def test_a_take_over_that_was_missed_is_made_up_for(valkey: RedisServer) -> None:
    """The old connection ends although its worker lost its subscriptions during the take-over."""
    async with workers(valkey) as (a, b):
        first = await a.connected(ONE)
        a.crossing._hub.pipe.drop()
        second = await b.connected(ONE)
        await until(lambda: not first.line.open)
        await heard(a, b)
        assert second.line.open
        assert holder(valkey, ONE) == "b"


async def test_who_was_cut_off_takes_no_key_back(valkey: RedisServer) -> None:
    async with workers(valkey) as (a, b):
        first = await a.connected(ONE)
        a.crossing._hub.pipe.drop()
        a.crossing._pipe.drop()
        second = await b.connected(ONE)
        await until(lambda: not first.line.open)
        await until(lambda: a.crossing.usable)
        await heard(a, b)
        assert second.line.open
        assert holder(valkey, ONE) == "b"


async def test_a_key_that_left_while_redis_was_away_is_taken_out(valkey: RedisServer) -> None:
    async with workers(valkey, 1) as (a,):
        first, other = await a.connected(ONE), await a.connected(TWO)
        a.crossing._pipe.drop()
        first.leave()  # the release is lost because the connection is closed
        while a.crossing.usable:
            await asyncio.sleep(0)
        other.leave()
        await until(lambda: a.crossing.usable)
        await heard(a)
        assert (holder(valkey, ONE), holder(valkey, TWO)) == ("", "")
        assert valkey.run("SCARD", "sbd:held:a") == 0
