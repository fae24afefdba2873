"""Bursts of incoming messages: none is lost, few are in memory, and they stay in order."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from peer.gateway import commits, incoming, keys
from peer.gateway.backlog import Backlogs, Waiting, encode
from peer.gateway.bounds import PIPE_BYTES
from peer.gateway.calls import Calls
from peer.gateway.commits import Commits
from peer.gateway.incoming import Incoming
from peer.gateway.queue_writes import QueueWrites
from peer.inbox import MAX_BYTES
from peer.senders import MAX_MESSAGES
from peer.twins import TwinCache
from proto.rmb import types_pb2 as pb
from proto.rmb.address import Address
from proto.rmb.sealing import Sealer, new_uid
from tests.support import identities
from tests.support.redis_servers import RedisServer
from tests.support.slow_twins import SlowTwins, known, requests
from tests.support.waiting import eventually

OWN, OTHER, THIRD = (identities.twin(number) for number in (1, 2, 3))
MB = 1024 * 1024


class World:
    """The incoming half of a gateway, with a Redis."""

    def __init__(self, valkey: RedisServer) -> None:
        own = Address(OWN.id)
        self.redis = valkey
        self.source = SlowTwins()
        self.twins = TwinCache(self.source)
        self.counters: Counter[str] = Counter()
        self.flooded = False
        self.refused: list[tuple[str, int]] = []
        self.commits = Commits(valkey.url, lambda: self.incoming.resume())
        self.writes = QueueWrites(self.commits, self.counters)
        sealer = Sealer(own, OWN.signing_key, OWN.encryption_key, os.urandom)
        self.incoming = Incoming(
            own,
            sealer,
            self.twins,
            self.commits,
            self.writes,
            Backlogs(self.commits),
            Calls(sealer, self.twins, self.sent),
            lambda request: False,
            lambda uid, source, error: self.refused.append((uid, error.code)),
            self.sent,
            lambda uid, twin: None,
            lambda uid: False,
            self.counters,
            self.flood,
        )

    def sent(self, data: bytes, deadline: int) -> None:
        """Ignore the message."""

    def flood(self, flooded: bool) -> None:
        self.flooded = flooded

    def served(self) -> list[bytes]:
        """Return the payloads in the order of the requests."""
        found = self.redis.run("LRANGE", "msgbus.out.age", 0, -1)
        return [json.loads(each)["dat"] for each in reversed(found)]


@pytest.fixture
async def world(valkey: RedisServer) -> AsyncIterator[World]:
    found = World(valkey)
    yield found
    await found.incoming.aclose()
    await found.twins.aclose()
    await found.commits.aclose(5.0)


async def test_what_waits_for_a_twin_is_not_lost(world: World) -> None:
    """Thousands of messages of a twin that is not looked up yet wait, and none is lost.

    A gateway that was disconnected gets so many from the relay.
    """
    world.commits.start()
    count = MAX_MESSAGES + 2500
    sealer = Sealer(Address(OTHER.id), OTHER.signing_key, OTHER.encryption_key, os.urandom)
    now = int(time.time())
    uids = [new_uid(os.urandom) for _ in range(count)]
    for uid in uids:
        world.incoming.receive(
            sealer.request(uid, (OWN.id, None), "out.age", b"x", known(OWN), now, 300)
        )
    await eventually(lambda: world.incoming.waiting == MAX_MESSAGES)
    world.source.answering.set()
    await eventually(lambda: world.redis.run("LLEN", "msgbus.out.age") == count)
    found = world.redis.run("LRANGE", "msgbus.out.age", 0, -1)
    assert [json.loads(each)["ref"] for each in reversed(found)] == uids
    assert not any(name.startswith("dropped") for name in world.counters)


async def test_a_stop_waits_for_look_ups(world: World) -> None:
    """Stopping waits for look-ups, because no relay has these messages any more."""
    world.commits.start()
    for each in requests(OTHER, OWN, 100):
        world.incoming.receive(each)
    await eventually(lambda: world.incoming.waiting == 100)
    asyncio.get_running_loop().call_later(0.2, world.source.answering.set)
    await world.incoming.aclose()
    await world.writes.applied()
    assert world.redis.run("LLEN", "msgbus.out.age") == 100


async def test_a_stop_waits_for_redis_to_say_whom_an_answer_is_for(world: World) -> None:
    uid = new_uid(os.urandom)
    world.twins.put(known(OTHER))
    body = encode(uid, Waiting("ret", "mine", int(time.time()) + 60), 60)
    world.redis.run("SET", keys.backlog(uid), body)
    sealer = Sealer(Address(OTHER.id), OTHER.signing_key, OTHER.encryption_key, os.urandom)
    now = int(time.time())
    world.incoming.receive(sealer.response(uid, (OWN.id, None), b"4", known(OWN), now, 300))
    asyncio.get_running_loop().call_later(0.2, world.commits.start)
    await world.incoming.aclose()
    await world.writes.applied()
    assert json.loads(world.redis.run("RPOP", "ret"))["ref"] == "mine"


async def test_a_stop_says_what_it_gives_up(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(incoming, "STOP_S", 0.1)
    world.commits.start()
    for each in requests(OTHER, OWN, 3):
        world.incoming.receive(each)
    await world.incoming.aclose()
    assert "3 of senders that could not be looked up" in caplog.text


async def test_large_messages_that_wait_for_a_twin_stop_the_reading(world: World) -> None:
    world.commits.start()
    messages = requests(OTHER, OWN, 2, bytes(MB)) * (MAX_BYTES // MB + 1)
    for each in messages:
        world.incoming.receive(each)
        await asyncio.sleep(0)
    assert world.flooded
    world.source.answering.set()
    await eventually(lambda: not world.flooded)
    await eventually(lambda: world.counters["repeats"] == len(messages) - 2)


async def test_what_redis_does_not_take_stops_the_reading(world: World) -> None:
    world.twins.put(known(OTHER))
    world.writes.answer("ret", bytes(PIPE_BYTES + 1))  # there is no connection yet
    for each in requests(OTHER, OWN, 1, bytes(MB)) * (MAX_BYTES // MB + 1):
        world.incoming.receive(each)
        await asyncio.sleep(0)
    assert world.flooded
    world.commits.start()
    await eventually(lambda: not world.flooded)


async def test_unknown_senders_hold_nobody_up_while_twins_are_away(world: World) -> None:
    world.commits.start()
    world.source.away = True
    world.source.answering.set()
    world.twins.put(known(OTHER))
    for each in requests(THIRD, OWN, 10) * (MAX_MESSAGES // 5):
        world.incoming.receive(each)
    (message,) = requests(OTHER, OWN, 1)
    world.incoming.receive(message)
    await eventually(lambda: world.redis.run("LLEN", "msgbus.out.age") == 1)
    assert world.counters["dropped:twins_away"] >= MAX_MESSAGES


async def test_an_answer_is_kept_while_redis_does_not_tell_who_asked(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer is kept while Redis does not answer which program made the request.

    A former process sent the request; only Redis has the data.
    """
    world.commits.start()
    await world.commits.pipe.wait_usable()
    world.twins.put(known(OTHER))
    uid, now = new_uid(os.urandom), int(time.time())
    world.redis.run("SET", keys.backlog(uid), encode(uid, Waiting("ret", "mine", now + 60), 60))
    sealer = Sealer(Address(OTHER.id), OTHER.signing_key, OTHER.encryption_key, os.urandom)
    world.redis.run("ACL", "SETUSER", "default", "-get")
    try:
        world.incoming.receive(sealer.response(uid, (OWN.id, None), b"x", known(OWN), now, 60))
        await eventually(lambda: "redis refused a read" in caplog.text)
    finally:
        world.redis.run("ACL", "SETUSER", "default", "+@all")
    answer = json.loads(await eventually(lambda: world.redis.run("RPOP", "ret")))
    assert answer["ref"] == "mine"


async def test_what_has_come_is_written_at_the_end(world: World) -> None:
    """Messages that arrived are written at the end, because the relay has removed them."""
    world.commits.start()
    await world.commits.pipe.wait_usable()
    world.twins.put(known(OTHER))
    for each in requests(OTHER, OWN, 500):
        world.incoming.receive(each)
    await world.incoming.aclose()
    await world.commits.aclose(5.0)
    assert world.redis.run("LLEN", "msgbus.out.age") == 500


async def test_who_asks_is_told_when_redis_does_not_take_the_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender gets an error when Redis is out of memory or the key of the queue is not a list."""
    monkeypatch.setattr(commits, "REFUSED_RETRY_S", 0.05)
    monkeypatch.setattr(commits, "ROOM_S", 0.2)
    world.commits.start()
    await world.commits.pipe.wait_usable()
    world.twins.put(known(OTHER))
    world.redis.run("SET", "msgbus.out.age", "no list")
    (first,) = requests(OTHER, OWN, 1)
    world.incoming.receive(first)
    await eventually(lambda: [code for _, code in world.refused] == [500])
    world.redis.run("CONFIG", "SET", "maxmemory", "1")
    try:
        (second,) = requests(OTHER, OWN, 1)
        world.incoming.receive(second)
        await eventually(lambda: len(world.refused) == 2)
    finally:
        world.redis.run("CONFIG", "SET", "maxmemory", "0")
    uids = [pb.Envelope.FromString(each).uid for each in (first, second)]
    assert world.refused == [(uids[0], 500), (uids[1], 429)]
    assert world.counters["rejected:429"] == world.counters["rejected:500"] == 1


async def test_what_its_signature_fits_as_well_is_a_repeat(world: World) -> None:
    """A message with the same signature is a repeat, even with one byte moved from uid to tags."""
    world.commits.start()
    world.twins.put(known(OTHER))
    sealer = Sealer(Address(OTHER.id), OTHER.signing_key, OTHER.encryption_key, os.urandom)
    at, now = known(OWN), int(time.time())
    first = sealer.request("abc", (OWN.id, None), "out.age", b"x", at, now, 300, tags="d")
    moved = pb.Envelope.FromString(first)
    moved.uid, moved.tags = "ab", "cd"
    for each in (first, first, moved.SerializeToString()):
        world.incoming.receive(each)
    await eventually(lambda: world.redis.run("LLEN", "msgbus.out.age"))
    assert world.counters["repeats"] == 2
    assert world.counters["requests_received"] == 1


@pytest.mark.parametrize("destination", [(OTHER.id, None), (OWN.id, ""), (OWN.id, "x")])
async def test_what_is_for_another_session_is_dropped(
    world: World, destination: tuple[int, str | None]
) -> None:
    """A message for another session, misrouted by a relay, is dropped.

    The session that it is meant for may answer it as well.
    """
    world.twins.put(known(OTHER))
    sealer = Sealer(Address(OTHER.id), OTHER.signing_key, OTHER.encryption_key, os.urandom)
    data = sealer.request("a", destination, "out.age", b"", known(OWN), int(time.time()), 60)
    world.incoming.receive(data)
    await eventually(lambda: world.counters)
    assert world.counters == {"dropped:misdirected": 1}
