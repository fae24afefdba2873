"""Rates of sessions and queues: the arithmetic with a given clock, and the contents of Redis."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hiredis
import pytest
from redis import Redis

from redispipe.errors import LinkLost
from relay.queues import keys
from relay.queues.destination import Destination
from relay.sessions import published_rates, rates
from relay.sessions.published_rates import Flow, Published
from relay.sessions.rates import LIFE_S, PART, PARTS, WINDOW_S, RateMeter, Rates
from tests.support.redis_servers import RedisServer

TICK_S = 0.1


class Worker:
    """The parts of a worker that rates use: sessions with counters, a set clock, a real Redis."""

    def __init__(self, client: Redis | None, boot_id: str = "boot") -> None:
        self.boot_id = boot_id
        self.now = 100.0
        self.loop = SimpleNamespace(time=lambda: self.now)
        self.commit = self
        self.pipe = SimpleNamespace(usable=True)
        self.sessions: dict[Any, bytes] = {}
        self.sent: list[list[Any]] = []
        self.lost = False  # whether commands are discarded
        self._client = client
        if client is not None:
            client.sadd(keys.WORKERS, boot_id)
        worker: Any = self
        self.meter = RateMeter(worker)

    def submit(self, payload: bytes, answered: Any) -> None:
        reader = hiredis.Reader()
        reader.feed(payload)
        words = reader.gets()
        self.sent.append(words)
        if self.lost:
            answered(LinkLost("away"))
        else:
            answered(self._client.execute_command(*words) if self._client else 1)

    def add(self, twin: int, sid: str | None = None, epoch: int = 1) -> Any:
        """Add a session that the worker holds and that begins now."""
        destination = Destination((twin, sid))
        session: Any = SimpleNamespace(
            destination=destination, epoch=epoch, end_reason=None,
            messages_in=0, messages_out=0, bytes_in=0, bytes_out=0,
        )  # fmt: skip
        holder: Any = Holder(session)
        destination.session = holder
        self.sessions[holder] = b""
        return holder

    def end(self, session: Any) -> None:
        session.end_reason = "client_close"
        session.destination.session = None
        del self.sessions[session]
        self.meter.ended(session)

    def run(self, seconds: float, *loads: tuple[Any, float, float]) -> None:
        """Let time pass while sessions send and receive the given numbers of messages a second."""
        began = {id(each): (each.messages_in, each.messages_out) for each, _, _ in loads}
        for tick in range(1, round(seconds / TICK_S) + 1):
            self.now += TICK_S
            for session, per_s_in, per_s_out in loads:
                first_in, first_out = began[id(session)]
                session.messages_in = first_in + int(per_s_in * tick * TICK_S)
                out = first_out + int(per_s_out * tick * TICK_S)
                session.destination.stored += out - session.messages_out
                session.messages_out = out
                session.bytes_in, session.bytes_out = 100 * session.messages_in, 50 * out
            self.meter.tick(self.now)


class Holder:
    """Attributes of a session, in an object that dictionaries can use as a key."""

    def __init__(self, session: SimpleNamespace) -> None:
        self.__dict__ = session.__dict__


@pytest.fixture
def redis(any_redis: RedisServer) -> Any:
    with Redis(port=any_redis.port, protocol=2) as client:
        yield client


def read(redis: Redis) -> Published:
    return published_rates.read(redis)


def test_a_rate_is_right_within_two_windows_whenever_it_begins(redis: Redis) -> None:
    for phase in range(0, 20, 3):
        worker = Worker(redis)
        session = worker.add(7)
        worker.run(10 + phase * TICK_S)
        worker.run(2 * WINDOW_S + TICK_S, (session, 200, 100))
        found = read(redis).of("7", 1)
        assert found.messages_in == pytest.approx(200, rel=0.01)
        assert found.messages_out == pytest.approx(100, rel=0.01)
        assert found.bytes_in == pytest.approx(20_000, rel=0.01)
        assert found.bytes_out == pytest.approx(5_000, rel=0.01)
        redis.delete(keys.rates("boot"))


def test_the_time_that_really_passed_counts(redis: Redis) -> None:
    """The rate is right although a busy worker measured late."""
    worker = Worker(redis)
    session = worker.add(7)
    worker.run(5, (session, 10, 0))
    worker.now += 6.0
    session.messages_in += 60
    worker.meter.tick(worker.now)
    assert read(redis).of("7", 1).messages_in == pytest.approx(10, rel=0.15)


def test_a_session_that_has_just_begun_has_no_rate_yet(redis: Redis) -> None:
    worker = Worker(redis)
    worker.run(WINDOW_S - 2 * TICK_S)
    session = worker.add(7)
    session.messages_in = 50
    worker.run(4 * TICK_S)
    assert read(redis).sessions == {}, "50 messages within 0.2 s are no rate of 250"
    worker.run(WINDOW_S + TICK_S, (session, 20, 0))
    assert read(redis).of("7", 1).messages_in == pytest.approx(20, rel=0.1)


def test_idle_sessions_are_not_written(redis: Redis) -> None:
    worker = Worker(redis)
    session = worker.add(7)
    for twin in range(8, 60):
        worker.add(twin)
    worker.run(20)
    assert worker.sent == []
    worker.run(6, (session, 5, 0))
    assert set(read(redis).sessions) == {"7"}
    worker.run(2 * WINDOW_S + TICK_S)
    assert not redis.exists(keys.rates("boot"))
    sent = len(worker.sent)
    worker.run(20)
    assert len(worker.sent) == sent


def test_only_what_changed_is_written(redis: Redis) -> None:
    worker = Worker(redis)
    steady, other = worker.add(7), worker.add(8)
    worker.run(10, (steady, 20, 0), (other, 20, 0))
    worker.sent.clear()
    worker.run(10, (steady, 20, 0), (other, 40, 0))
    written = {name for words in worker.sent if words[0] == b"HSET" for name in words[2::2]}
    assert written == {b"8"}


def test_commands_are_few_however_many_sessions_there_are() -> None:
    count = 50_000
    worker = Worker(None)
    sessions = [worker.add(twin) for twin in range(1, count + 1)]
    for _ in range(round(3 * WINDOW_S / TICK_S)):
        worker.now += TICK_S
        for session in sessions:
            session.messages_in += 1
        before = len(worker.sent)
        worker.meter.tick(worker.now)
        assert len(worker.sent) - before <= 4
        for words in worker.sent[before:]:
            assert len(words) <= 2 + 2 * -(-count // PARTS)
    written = {name for words in worker.sent if words[0] == b"HSET" for name in words[2::2]}
    assert len(written) == count > PARTS * PART


def test_who_ends_has_no_rate(redis: Redis) -> None:
    worker = Worker(redis)
    one, two = worker.add(7, "a"), worker.add(7, "b")
    worker.run(5, (one, 10, 0), (two, 10, 0))
    assert set(read(redis).sessions) == {"7:a", "7:b"}
    worker.end(one)
    worker.run(TICK_S, (two, 10, 0))
    assert set(read(redis).sessions) == {"7:b"}


def test_a_queue_is_filled_from_elsewhere(redis: Redis) -> None:
    """One worker holds the session and cannot keep up; another one adds messages to its queue."""
    holder, other = Worker(redis, "holder"), Worker(redis, "other")
    session = holder.add(7, "a")
    queue, away = Destination((7, "a")), Destination((9, None))
    for _ in range(round(3 * WINDOW_S / TICK_S)):
        holder.run(TICK_S, (session, 0, 10))
        for destination, count in ((queue, 4), (away, 2)):
            destination.stored += count
            other.meter.filled[destination] = None
        other.run(TICK_S)
    found = read(redis)
    assert found.queue("7:a").rate_in == pytest.approx(50, rel=0.1)
    assert found.queue("7:a").rate_out == pytest.approx(10, rel=0.1)
    assert found.queue("9") == (pytest.approx(20, rel=0.1), 0)
    some = published_rates.read(redis, ["9", "8"])
    assert some.queue("9") == found.queue("9") and some.queue("8") == Flow()
    other.run(2 * WINDOW_S + TICK_S)
    assert read(redis).queue("9") == Flow()


def test_a_twin_is_the_sum_of_its_sessions_on_all_workers(redis: Redis) -> None:
    one, two = Worker(redis, "one"), Worker(redis, "two")
    sessions = [one.add(7, "a"), one.add(8), two.add(7, "b")]
    for _ in range(60):
        one.run(TICK_S, (sessions[0], 100, 20), (sessions[1], 30, 0))
        two.run(TICK_S, (sessions[2], 50, 0))
    twins = read(redis).twins()
    assert twins[7] == (pytest.approx(150, rel=0.05), pytest.approx(20, rel=0.05))
    assert twins[8] == (pytest.approx(30, rel=0.05), 0)
    assert twins[7].both > twins[8].both and set(twins) == {7, 8}


def test_sbd_clients_have_rates_and_are_no_twins(redis: Redis) -> None:
    worker = Worker(redis)
    session = worker.add(7)
    peer: Any = Holder(SimpleNamespace(
        text="sbd:abc", epoch=5, ended=False, messages_in=0, messages_out=0, bytes_in=0,
        bytes_out=0, destination=Destination((1, None)),
    ))  # fmt: skip
    entering: Any = Holder(SimpleNamespace(text="", epoch=0, ended=False, messages_in=9))
    worker.meter.peers = {b"abc": peer, b"new": entering}
    worker.run(3 * WINDOW_S, (session, 20, 0), (peer, 100, 50))
    found = read(redis)
    rates_of_peer = found.of("sbd:abc", 5)
    assert rates_of_peer.messages_in == pytest.approx(100, rel=0.05)
    assert rates_of_peer.bytes_out == pytest.approx(2500, rel=0.05)
    assert set(found.sessions) == {"7", "sbd:abc"} and set(found.twins()) == {7}
    assert published_rates.read(redis, ["sbd:abc"]).of("sbd:abc", 5) == rates_of_peer
    peer.ended = True
    worker.meter.peers = {}
    worker.meter.peer_ended(peer)
    worker.run(TICK_S, (session, 20, 0))
    assert set(read(redis).sessions) == {"7"}


def test_after_a_take_over_the_newer_connection_counts(redis: Redis) -> None:
    one, two = Worker(redis, "one"), Worker(redis, "two")
    old, new = one.add(7, epoch=5), two.add(7, epoch=6)
    one.run(5, (old, 100, 0))
    two.run(5, (new, 10, 0))
    found = read(redis)
    assert found.of("7", 6).messages_in == pytest.approx(10, rel=0.05)
    assert found.of("7", 5) == Rates()


def test_rates_outlive_their_worker_for_seconds(redis: Redis) -> None:
    worker = Worker(redis)
    session = worker.add(7)
    worker.run(5, (session, 10, 0))
    assert 0 < redis.ttl(keys.rates("boot")) <= LIFE_S


def test_what_redis_lost_is_published_again(redis: Redis) -> None:
    worker = Worker(redis)
    session = worker.add(7)
    worker.run(5, (session, 10, 0))
    for loss in ("expired", "link", "garbage"):
        if loss == "expired":
            redis.delete(keys.rates("boot"))
        elif loss == "link":
            worker.lost = True
            worker.run(5, (session, 10, 0))
            redis.hset(keys.rates("boot"), "8", rates.pack(1, Rates(9)))
            worker.lost = False
        else:
            redis.hset(keys.rates("boot"), mapping={"x": "y", "12": "short", "stream:": b"0" * 28})
            assert set(read(redis).sessions) == {"7"}
        worker.run(3 * WINDOW_S, (session, 10, 0))
        assert read(redis).of("7", 1).messages_in == pytest.approx(10, rel=0.05)
        assert set(read(redis).sessions) == {"7"}
