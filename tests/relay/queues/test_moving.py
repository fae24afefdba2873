"""Moving a queue: order, deadlines, bounds, connected sessions, and a killed mover."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import RedisError

from relay.queues import charging, headers, keys, moving, scripts
from relay.queues.batch import QueuePolicy
from relay.queues.held import unpack
from relay.queues.moving import Moved
from tests.relay.queues.mail import TO, fill, put, uids
from tests.support.envelopes import request
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

POLICY = QueuePolicy()
ROOT = Path(__file__).parents[3]


@pytest.fixture
def client(any_redis: RedisServer) -> Iterator[Redis]:
    with Redis(port=any_redis.port, protocol=2) as client:
        yield client


def test_behind_what_is_there_and_in_order(any_redis: RedisServer, client: Redis) -> None:
    there = fill(any_redis, "7:new", 2, "there")
    mail = fill(any_redis, "7", 600)
    assert moving.move(client, "7", "7:new", POLICY) == Moved(600, 0, 0, 0, "")
    assert uids(any_redis, "7:new") == there + mail
    assert any_redis.run("XLEN", "stream:7") == 0
    assert 0 < any_redis.run("TTL", "stream:7:new") <= 2 * POLICY.retention_s
    assert moving.move(client, "7", "7:new", POLICY) == Moved(0, 0, 0, 0, "")


def test_what_comes_meanwhile_stays(any_redis: RedisServer, client: Redis) -> None:
    """The mover stops at the entry that was last when it began, so a busy sender cannot keep it."""
    fill(any_redis, "7", 3)

    class Busy(Redis):
        def memory_usage(self, *args: object, **options: object) -> object:
            fill(any_redis, "7", 1, "late")
            return super().memory_usage(*args, **options)  # type: ignore[arg-type]

    with Busy(port=any_redis.port, protocol=2) as busy:
        assert moving.move(busy, "7", "7:new", POLICY) == Moved(3, 0, 0, 1, "")
    assert uids(any_redis, "7") == ["late0"]


def test_deadlines_are_kept(any_redis: RedisServer, client: Redis) -> None:
    now = time.time()
    waited = f"{int((now - 10) * 1000)}-0"
    # The ids are explicit, so that no second ends between two of these lines.
    first, second, third = (f"{int(now * 1000) + each}-0" for each in range(3))
    dead = request((3, None), TO, uid="dead", timestamp=int(now) - 12, expiration=5)
    put(any_redis, "7", dead, waited)
    put(
        any_redis,
        "7",
        request((3, None), TO, uid="about to", timestamp=int(now), expiration=1),
        first,
    )
    late = request((3, None), TO, uid="late on arrival", timestamp=int(now) - 60, expiration=5)
    put(any_redis, "7", late, second)
    put(
        any_redis,
        "7",
        request((3, None), TO, uid="lives", timestamp=int(now), expiration=60),
        third,
    )
    assert moving.move(client, "7", "7:new", POLICY) == Moved(2, 2, 0, 2, "")
    assert uids(any_redis, "7") == ["dead", "about to"]
    found = headers.read(client, "7:new", now=now + 61)
    # The new queue applies the same deadlines as the old one.
    assert [(each.uid, each.expired) for each in found] == [
        ("late on arrival", False), ("lives", True),
    ]  # fmt: skip


def test_mail_that_is_about_to_be_swept_is_not_rescued(
    any_redis: RedisServer, client: Redis
) -> None:
    old = f"{int((time.time() - POLICY.retention_s - 5) * 1000)}-0"
    put(any_redis, "7", request((3, None), TO, expiration=0), old)
    assert moving.move(client, "7", "7:new", POLICY) == Moved(0, 1, 0, 1, "")


def test_what_is_no_envelope_stays(any_redis: RedisServer, client: Redis) -> None:
    put(any_redis, "7", b"\xff\xff")
    fill(any_redis, "7", 1)
    assert moving.move(client, "7", "7:new", POLICY) == Moved(1, 0, 1, 1, "")


def test_all_fields_of_an_entry_move(any_redis: RedisServer, client: Redis) -> None:
    put(any_redis, "7", request((3, None), TO), more="fields")
    before = any_redis.run("XRANGE", "stream:7", "-", "+")
    moving.move(client, "7", "7:new", POLICY)
    after = any_redis.run("XRANGE", "stream:7:new", "-", "+")
    assert [fields for _, fields in after] == [fields for _, fields in before]


def test_a_full_queue_takes_what_fits(any_redis: RedisServer, client: Redis) -> None:
    there = fill(any_redis, "7:new", 3, "there")
    mail = fill(any_redis, "7", 10)
    policy = QueuePolicy(max_messages=8)
    assert moving.move(client, "7", "7:new", policy) == Moved(5, 0, 0, 5, "full")
    assert uids(any_redis, "7:new") == there + mail[:5] and uids(any_redis, "7") == mail[5:]
    assert moving.move(client, "7", "7:x", QueuePolicy(max_bytes=0)).stopped == "full"


def test_a_connected_session_keeps_its_mail(any_redis: RedisServer, client: Redis) -> None:
    fill(any_redis, "7", 3)
    any_redis.run("HSET", keys.SESSIONS, "7", "1 boot 1.0 127.0.0.1")
    assert moving.move(client, "7", "7:new", POLICY) == Moved(0, 0, 0, 3, "connected")


@pytest.mark.parametrize(
    "sign",
    [
        ("SADD", keys.GUESTS, "7"),
        ("SADD", keys.GUESTS, "7:new"),
        ("SET", keys.guest_lease("7"), "boot"),
        ("SET", keys.guest_lease("7:new"), "boot"),
    ],
)
def test_mail_of_guests_is_on_its_way_elsewhere(
    any_redis: RedisServer, client: Redis, sign: tuple[str, ...]
) -> None:
    fill(any_redis, "7", 3)
    any_redis.run(*sign)
    assert moving.move(client, "7", "7:new", POLICY) == Moved(0, 0, 0, 3, "guest")
    if sign[0] == "SADD" and sign[2] == "7:new":
        any_redis.run("HSET", keys.SESSIONS, "7:new", "1 boot 1.0 127.0.0.1")
        assert moving.move(client, "7", "7:new", POLICY).moved == 3


def test_what_is_charged_follows(any_redis: RedisServer, client: Redis) -> None:
    mail = fill(any_redis, "7", 5)
    (size_bytes,) = {each.size_bytes for each in headers.read(client, "7")}
    client.eval(*charging.script("charge", 60, ("7", 0, 3, 5, 5 * size_bytes)))
    policy = QueuePolicy(max_messages=3)
    assert moving.move(client, "7", "7:new", policy).moved == 3
    for text, messages in (("7", 2), ("7:new", 3)):
        assert unpack(int(any_redis.run("HGET", keys.share(text), "3"))).messages == messages
    for name in (keys.sent(3), keys.received(7)):
        assert any_redis.run("HMGET", name, "messages", "queues") == [b"5", b"2"]
    moving.move(client, "7", "7:new", POLICY)
    assert any_redis.run("EXISTS", keys.share("7")) == 0
    for name in (keys.sent(3), keys.received(7)):
        assert any_redis.run("HMGET", name, "messages", "queues") == [b"%d" % len(mail), b"1"]


def test_a_batch_sent_twice_moves_once(any_redis: RedisServer, client: Redis) -> None:
    """A repeated command changes nothing; the client library repeats one whose answer was lost."""
    mail = fill(any_redis, "7", 5)
    chosen = headers.read(client, "7")
    for moved in (5, 0):
        assert moving._run(client, "7", "7:new", POLICY, chosen) == ("", moved, 0)
    assert uids(any_redis, "7:new") == mail


def test_a_wake_is_published(any_redis: RedisServer, client: Redis) -> None:
    fill(any_redis, "7", 1)
    with client.pubsub() as listener:
        listener.subscribe("wake:7:new")
        assert listener.get_message(timeout=5)["type"] == "subscribe"
        moving.move(client, "7", "7:new", POLICY)
        assert listener.get_message(timeout=5)["data"] == b"new"


def test_out_of_memory_loses_nothing(any_redis: RedisServer, client: Redis) -> None:
    mail = fill(any_redis, "7", 20)
    any_redis.run("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(RedisError):
            moving.move(client, "7", "7:new", POLICY)
    finally:
        any_redis.run("CONFIG", "SET", "maxmemory", "0")
    assert uids(any_redis, "7") == mail and uids(any_redis, "7:new") == []


def test_redis_goes_away_between_batches(any_redis: RedisServer, client: Redis) -> None:
    mail = fill(any_redis, "7", headers.PAGE_MESSAGES + 1)
    batches = 0

    class Failing(Redis):
        def eval(self, script: str, *args: object) -> object:
            nonlocal batches
            batches += script == scripts.source("move")
            if batches == 2:
                raise RedisError("gone")
            return super().eval(script, *args)  # type: ignore[arg-type]

    with Failing(port=any_redis.port, protocol=2) as failing:
        moved = moving.move(failing, "7", "7:new", POLICY)
    assert moved == Moved(headers.PAGE_MESSAGES, 0, 0, -1, "redis")
    assert uids(any_redis, "7:new") + uids(any_redis, "7") == mail


MOVER = """
import sys
from redis import Redis
from relay.queues import moving
from relay.queues.batch import QueuePolicy
moving.move(Redis(port=int(sys.argv[1]), protocol=2), "7", "7:new", QueuePolicy(max_messages=10**6))
"""


def test_killed_halfway(valkey: RedisServer) -> None:
    mail = fill(valkey, "7", 5000)
    mover = subprocess.Popen(
        [sys.executable, "-c", MOVER, str(valkey.port)],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "rmbsite.settings"},
    )
    try:
        wait_until(lambda: valkey.run("XLEN", "stream:7:new") > 0)
    finally:
        mover.kill()
        mover.wait()
    moved = uids(valkey, "7:new")
    assert 0 < len(moved) < 5000, "killed too late to tell anything"
    assert moved + uids(valkey, "7") == mail
    with Redis(port=valkey.port, protocol=2) as client:
        assert moving.move(client, "7", "7:new", POLICY).left == 0
    assert uids(valkey, "7:new") == mail
