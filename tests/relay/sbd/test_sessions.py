"""Epochs of connections in a real Redis, and the sessions that operators see."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest_asyncio

from proto.sbd.errors import DropReason
from proto.sbd.frames import path_of_key
from redispipe.address import RedisAddress
from relay.queues import keys
from relay.sbd.connection import Connection
from relay.sbd.crossing import Crossing, held
from relay.sbd.options import EndReason, LossReason, SbdOptions
from relay.sbd.sessions import SbdSessions
from relay.sbd.switch import Switch
from relay.sessions.history import SessionOpened, SessionProgress
from relay.sessions.models import Peer
from tests.proto.sbd.pairs import NONCE, Identity
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually

KEY = Identity(1).key
OTHER = Identity(2).key


class Socket:
    """A client that reads nothing; `waiting_bytes` is what waits for it."""

    remote = "192.0.2.1:5000"

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.waiting_bytes = 0
        self.aborted = False

    def send_messages(self, messages: list[bytes]) -> None:
        self.sent += messages

    def buffered_bytes(self) -> int:
        return self.waiting_bytes

    def abort(self) -> None:
        self.aborted = True


class History:
    """A history that records its calls in order."""

    def __init__(self) -> None:
        self.noted: list[Any] = []

    def opened(self, session: SessionOpened) -> None:
        self.noted.append(session)

    def progress(self, sessions: list[SessionProgress]) -> None:
        self.noted += sessions

    def closed(self, session: SessionProgress, reason: str) -> None:
        self.noted.append((session, reason))


class Worker:
    """A switch with its connection to Redis, its history, and what a worker does for operators."""

    def __init__(self, server: RedisServer, boot_id: str) -> None:
        address = RedisAddress.parse(server.url)
        self.crossing = Crossing(boot_id, address.connect, address.opening(f"sbd-{boot_id}"))
        self.switch = Switch(SbdOptions(), asyncio.get_running_loop(), self.crossing)
        self.history: Any = History()
        self.ended: list[Any] = []
        rates = SimpleNamespace(peers={}, peer_ended=self.ended.append)
        worker: Any = SimpleNamespace(upkeep=SimpleNamespace(rates=rates))
        self.sessions = SbdSessions(self.switch, self.history, worker)

    def kick(self, fields: dict[str, int]) -> None:
        self.sessions.kick({f"kick:{key}": f"{epoch}|noise" for key, epoch in fields.items()})

    def sign_in(self, key: bytes = KEY) -> Connection:
        """Open a connection whose client has proven that it holds its key."""
        socket: Any = Socket()
        connection = self.switch.open(key, NONCE, socket, "192.0.2.1")
        self.switch.authenticated(connection)
        return connection


def text_of(key: bytes) -> str:
    return f"sbd:{path_of_key(key)}"


Start = Callable[[str], Worker]


@pytest_asyncio.fixture
async def start(any_redis: RedisServer) -> AsyncIterator[Start]:
    workers = []

    def begin(boot_id: str) -> Worker:
        worker = Worker(any_redis, boot_id)
        worker.crossing.start(worker.switch)
        workers.append(worker)
        return worker

    yield begin
    for worker in workers:
        worker.switch.stop()
        await worker.crossing.stop()


async def usable(*workers: Worker) -> None:
    await eventually(lambda: all(worker.crossing.usable for worker in workers))


async def test_an_epoch_is_a_time_of_redis_and_grows(any_redis: RedisServer, start: Start) -> None:
    one, two = start("one"), start("two")
    await usable(one, two)
    first = one.sign_in()
    await eventually(lambda: first.routable)
    assert abs(first.epoch / 1e6 - time.time()) < 60
    second = two.sign_in()
    await eventually(lambda: first.ended and second.routable)
    assert any_redis.run("HGET", keys.SBD_KEYS, KEY) == b"two %d" % second.epoch
    ahead = second.epoch + 3_600_000_000
    any_redis.run("HSET", keys.SBD_KEYS, KEY, f"two {ahead}")  # the clock was set back
    third = one.sign_in()
    await eventually(lambda: third.routable)
    assert third.epoch == ahead + 1
    third.end(EndReason.KICKED)
    await eventually(lambda: any_redis.run("HGET", keys.SBD_KEYS, KEY) is None)
    peer = Peer("sbd", first.text.removeprefix("sbd:"))
    opened = [each for each in one.history.noted if isinstance(each, SessionOpened)]
    assert [(each.key, each.epoch) for each in opened] == [(peer, first.epoch), (peer, ahead + 1)]
    assert [each[1] for each in one.history.noted if each not in opened] == ["replaced", "kicked"]


async def test_who_was_replaced_while_redis_was_away_does_not_come_back(
    any_redis: RedisServer, start: Start
) -> None:
    """A worker that missed a take-over enters its keys again, but does not replace newer ones."""
    one = start("one")
    await usable(one)
    older, stays = one.sign_in(), one.sign_in(OTHER)
    await eventually(lambda: older.routable and stays.routable)
    epoch = stays.epoch
    any_redis.run("HSET", keys.SBD_KEYS, KEY, f"two {older.epoch + 5}")
    any_redis.run("HDEL", keys.SBD_KEYS, OTHER)
    any_redis.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await eventually(lambda: older.ended)
    await eventually(lambda: any_redis.run("HGET", keys.SBD_KEYS, OTHER) == b"one %d" % epoch)
    assert any_redis.run("HGET", keys.SBD_KEYS, KEY) == b"two %d" % (older.epoch + 5)
    assert not stays.ended
    assert one.history.noted[-1][1] == "replaced"


async def test_who_comes_and_goes_while_redis_is_away(any_redis: RedisServer, start: Start) -> None:
    for key in (KEY, OTHER):  # of an earlier connection, which ended while Redis was unavailable
        any_redis.run("HSET", keys.SBD_KEYS, key, "one 5")
        any_redis.run("SADD", held("one"), key)
    one = start("one")  # connects to Redis only in the next turn of the loop
    stays, goes = one.sign_in(), one.sign_in(OTHER)
    assert stays.routable and goes.routable and not stays.epoch
    goes.end(EndReason.CLIENT_CLOSE)
    one.kick({text_of(KEY): 2**60})  # of an earlier connection, whatever its epoch was
    assert not stays.ended and one.history.noted == []
    await eventually(lambda: stays.epoch > 5)
    await eventually(lambda: any_redis.run("HGET", keys.SBD_KEYS, OTHER) is None)
    assert set(any_redis.run("SMEMBERS", held("one"))) == {KEY}
    assert [each.epoch for each in one.history.noted] == [stays.epoch]


async def test_who_ends_before_its_claim_is_answered(any_redis: RedisServer, start: Start) -> None:
    one = start("one")
    await usable(one)
    gone = one.sign_in()
    gone.end(DropReason.RATE_LIMIT)
    stays = one.sign_in(OTHER)
    await eventually(lambda: stays.routable and any_redis.run("HLEN", keys.SBD_KEYS) == 1)
    assert [each.key.text for each in one.history.noted] == [stays.text]


async def test_counters_and_kicks(any_redis: RedisServer, start: Start) -> None:
    one = start("one")
    await usable(one)
    source, target = one.sign_in(), one.sign_in(OTHER)
    await eventually(lambda: source.routable and target.routable)
    one.history.noted.clear()
    one.switch.forward(source, [OTHER + b"1", OTHER + b"22", Identity(3).key])
    await eventually(lambda: one.switch.counts.lost[LossReason.ABSENT] == 1)
    assert (target.messages_out, target.bytes_out, target.drops) == (2, 67, 0)
    assert (source.drops, one.switch.counts.delivered_bytes) == (1, 67)
    one.sessions.progress()
    one.sessions.progress()  # nothing has changed
    assert {each.key.text: each.messages_out for each in one.history.noted} == {
        source.text: 0, target.text: 2,
    }  # fmt: skip
    assert len(one.history.noted) == 2

    socket: Any = target._socket
    socket.waiting_bytes = SbdOptions().receiver_bytes + 1
    one.switch.forward(source, [OTHER])
    assert target.ended and (target.messages_out, target.drops, source.drops) == (2, 1, 2)
    assert one.history.noted[-1][0].drops == 1 and one.history.noted[-1][1] == "slow_reader"

    others = ("7", "7:sbd", "sbd:", "sbd:7", f"{source.text}=", text_of(Identity(9).key))
    one.kick({source.text: source.epoch - 1, **dict.fromkeys(others, 2**60)})
    one.sessions.kick({f"kick:{source.text}": "soon", f"kick_twin:{source.text}": "9" * 20})
    assert not source.ended
    one.kick({source.text: source.epoch})
    assert source.ended and one.history.noted[-1][1] == "kicked" and one.ended == [target, source]
