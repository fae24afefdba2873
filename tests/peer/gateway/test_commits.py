"""What the gateway writes to Redis: bounded while it waits, applied once, in whole batches."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from peer.gateway import commits, dead_letters, keys
from peer.gateway.batch import Why
from peer.gateway.bounds import PIPE_BYTES
from peer.gateway.calls import Calls
from peer.gateway.commits import Commits
from peer.gateway.handlers import ModuleContext, ModuleStore
from peer.gateway.queue_writes import QueueWrites
from peer.modules.api import Request
from proto.files.errors import RefusedError
from proto.files.names import check_command
from proto.rmb.address import Address
from redispipe.pipe import RedisPipe
from redispipe.resp import command
from tests.support.redis_servers import RedisServer, start_redis62, start_valkey
from tests.support.tcp_proxy import Direction, tcp_proxy
from tests.support.waiting import eventually

ENTRY = bytes(1024 * 1024)


@pytest.fixture
async def writing(valkey: RedisServer) -> AsyncIterator[Commits]:
    """Start the writing half of a gateway, connected to Redis."""
    found = Commits(valkey.url)
    found.start()
    await found.pipe.wait_usable()
    yield found
    await found.aclose(5.0)


async def test_entries_that_wait_for_redis_are_counted(valkey: RedisServer) -> None:
    """Above the bound nothing more is accepted from relays: it would be in memory only."""
    room = asyncio.Event()
    writing = Commits(valkey.url, room.set)  # not connected yet
    writes = QueueWrites(writing, Counter())
    count = PIPE_BYTES // len(ENTRY) + 1
    for number in range(count):
        assert number > count - 3 or not writing.full
        writes.answer("ret", ENTRY)
        await asyncio.sleep(0)  # a turn of the loop closes the first batch
    assert writing.full
    writing.start()
    await asyncio.wait_for(room.wait(), 30)
    await eventually(lambda: valkey.run("LLEN", "ret") == count)
    assert not writing.full
    await writing.aclose(5.0)


async def test_a_batch_is_written_at_once_when_that_is_asked_for(
    valkey: RedisServer, writing: Commits
) -> None:
    def number() -> int:
        return int((valkey.run("GET", keys.COMMITTED) or b"- 0").split()[1])

    writing.add(command("LPUSH", "list", "1"))
    await writing.applied()
    before = number()
    writing.add(command("LPUSH", "list", "2"))
    writing.flush()
    writing.add(command("LPUSH", "list", "3"))
    writing.flush()  # one is unanswered: it waits
    writing.add(command("LPUSH", "list", "4"))
    await writing.applied()
    assert number() == before + 2
    assert valkey.run("LRANGE", "list", 0, -1) == [b"4", b"3", b"2", b"1"]


async def test_a_refused_batch_is_not_written_twice_when_the_connection_is_lost(
    valkey: RedisServer, writing: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "REFUSED_RETRY_S", 0.3)
    valkey.run("CONFIG", "SET", "maxmemory", "1")
    try:
        writing.add(command("LPUSH", "once", "x"))
        await eventually(lambda: writing.refused)
        valkey.run("CLIENT", "PAUSE", 1500, "WRITE")  # the new connection's write is not answered
    finally:
        valkey.run("CONFIG", "SET", "maxmemory", "0")
    connections = writing.pipe.connections
    writing.pipe.drop()
    await eventually(lambda: writing.pipe.connections > connections)
    writing.add(command("LPUSH", "next", "y"))
    await eventually(lambda: valkey.run("LLEN", "next") == 1)
    assert valkey.run("LLEN", "once") == 1
    assert valkey.run("LLEN", "next") == 1


async def test_answers_that_nobody_takes_do_not_stay_for_ever(
    valkey: RedisServer, writing: Commits
) -> None:
    writes = QueueWrites(writing, Counter())
    for ret in ("ret", "msgbus.system.reply"):
        writes.answer(ret, b"answer")
    await asyncio.wait_for(writes.applied(), 10)
    assert 3500 < valkey.run("TTL", "ret") <= 3600
    assert valkey.run("TTL", "msgbus.system.reply") == -1, "what others write there must stay"


@pytest.mark.parametrize("start", [start_valkey, start_redis62])
async def test_a_list_that_redis_refuses_for_good_costs_its_own_entries_only(
    tmp_path: Path, start: Callable[[Path], RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """A list that Redis refuses, for permissions or its type, loses only its own entries."""
    redis = start(tmp_path)
    writing, counters = Commits(redis.url), Counter[str]()
    writes = QueueWrites(writing, counters)
    writing.start()
    await writing.pipe.wait_usable()
    redis.run("SET", "text", "no list")
    redis.run("ACL", "SETUSER", "default", "resetkeys", "~msgbus.*", "~text", "~mine", "~next")
    for ret in ("mine", "text", "forbidden", "forbidden", "mine"):
        writes.answer(ret, b"answer")
    await asyncio.wait_for(writes.applied(), 10)
    writes.answer("next", b"answer")
    await asyncio.wait_for(writes.applied(), 10)
    redis.run("ACL", "SETUSER", "default", "allkeys")
    assert redis.run("LRANGE", "mine", 0, -1) == [b"answer"] * 2
    assert redis.run("LLEN", "next") == 1
    assert not redis.run("EXISTS", "forbidden")
    assert counters == {"dropped:list": 3}
    assert caplog.text.count("to list 'forbidden': NOPERM") == 1
    assert caplog.text.count("to list 'text': WRONGTYPE") == 1
    await writing.aclose(5.0)
    redis.remove()


async def test_no_list_pays_for_what_redis_refuses_of_the_gateway_itself(
    valkey: RedisServer, writing: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the permissions of the gateway's user change, no list loses entries."""
    monkeypatch.setattr(commits, "REFUSED_RETRY_S", 0.05)
    counters = Counter[str]()
    writes = QueueWrites(writing, counters)
    valkey.run("ACL", "SETUSER", "default", "resetkeys", "~msgbus.committed")
    try:
        writes.answer("ret", b"answer")
        writing.add(command("HDEL", keys.PROCESSING, "field"))
        await eventually(lambda: writing.refused > 2)
    finally:
        valkey.run("ACL", "SETUSER", "default", "allkeys")
    await asyncio.wait_for(writes.applied(), 10)
    assert valkey.run("LLEN", "ret") == 1
    assert not counters


@pytest.mark.parametrize("start", [start_valkey, start_redis62])
async def test_requests_that_nobody_takes_go_when_they_have_expired(
    tmp_path: Path, start: Callable[[Path], RedisServer]
) -> None:
    """Unserved requests are removed once expired, never earlier, whichever process wrote them."""
    redis = start(tmp_path)
    redis.run("HSET", "msgbus.hash", "field", "of somebody else")
    for life_s, least_s, most_s in ((600, 590, 600), (20, 590, 600), (10**9, 3500, 3600)):
        writing = Commits(redis.url)
        writing.start()
        writes = QueueWrites(writing, Counter())
        for name in ("out.age", "hash"):
            deadline = int(time.time()) + life_s
            writes.request(a_request(name)._replace(deadline=deadline), 0, 0)
        await asyncio.wait_for(writes.applied(), 10)
        assert least_s < redis.run("TTL", "msgbus.out.age") <= most_s
        await writing.aclose(5.0)
    assert redis.run("TTL", "msgbus.hash") == -1
    assert redis.run("LLEN", "msgbus.out.age") == 3
    redis.remove()


async def test_requests_give_way_when_redis_has_no_room(
    valkey: RedisServer, writing: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are given up while Redis is out of memory.

    Any twin can send them, and later writes would wait for as long as they do.
    """
    monkeypatch.setattr(commits, "REFUSED_RETRY_S", 0.05)
    monkeypatch.setattr(commits, "ROOM_S", 0.2)
    writes, given_up = QueueWrites(writing, Counter()), list[Why]()
    used = int(valkey.client().info("memory")["used_memory"])
    valkey.run("CONFIG", "SET", "maxmemory", used + 8 * len(ENTRY))
    try:
        request = a_request("nobody.serves")._replace(payload=bytes(12 * len(ENTRY)))
        writes.request(request, 0, 0, given_up.append)
        writes.answer("ret", b"answer")
        await asyncio.wait_for(writes.applied(), 10)
    finally:
        valkey.run("CONFIG", "SET", "maxmemory", "0")
    assert given_up == [Why.NO_ROOM]
    assert valkey.run("LLEN", "ret") == 1
    assert not valkey.run("EXISTS", "msgbus.nobody.serves")


async def test_what_redis_refused_until_it_expired_is_left_out(
    valkey: RedisServer, writing: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that Redis refused until it expired is skipped.

    Otherwise one batch that stays too large would block all others for ever.
    """
    monkeypatch.setattr(commits, "REFUSED_RETRY_S", 0.05)
    valkey.run("CONFIG", "SET", "maxmemory", "1")
    try:
        until = time.time() + 0.3
        writing.record_until(until, ["late", "x"], lambda: None, lambda: None)
        writing.record_until(until + 60, ["in time", "x"], lambda: None, lambda: None)
        writing.add(command("LPUSH", "other", "y"))
        await eventually(lambda: writing.refused and time.time() > until + 0.2)
    finally:
        valkey.run("CONFIG", "SET", "maxmemory", "0")
    await asyncio.wait_for(writing.applied(), 10)
    assert valkey.run("HKEYS", keys.PROCESSING) == [b"in time"]
    assert valkey.run("LLEN", "other") == 1


async def test_one_that_redis_has_no_room_for_holds_up_nothing_else(
    valkey: RedisServer, writing: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "REFUSED_RETRY_S", 0.01)
    # A kernel that accepts 12 MiB in one turn, which is possible as Redis reads at the same time.
    monkeypatch.setattr(RedisPipe, "flushed", True)
    until, done = time.time() + 60, asyncio.Event()

    def add(name: str, size_bytes: int) -> None:
        value = bytes(size_bytes)
        writing.record_until(until, [name, value], done.set, lambda: None)

    used = int(valkey.client().info("memory")["used_memory"])
    valkey.run("CONFIG", "SET", "maxmemory", used + 16 * len(ENTRY))
    try:
        add("large", 12 * len(ENTRY))
        for number in range(4):
            add(f"small {number}", len(ENTRY) // 2)
        writing.add(command("LPUSH", "list", "x"))
        await eventually(lambda: writing.refused)
        writing.add(command("LPUSH", "list", "y"))
        await eventually(
            lambda: valkey.run("HLEN", keys.PROCESSING) == 4 and valkey.run("LLEN", "list") == 2
        )
        assert not valkey.run("HEXISTS", keys.PROCESSING, "large")
    finally:
        valkey.run("CONFIG", "SET", "maxmemory", "0")
    await eventually(lambda: valkey.run("HLEN", keys.PROCESSING) == 5)
    await asyncio.wait_for(done.wait(), 10)


@pytest.mark.parametrize("start", [start_valkey, start_redis62])
async def test_what_was_written_is_on_record_although_redis_has_no_room(
    tmp_path: Path, start: Callable[[Path], RedisServer]
) -> None:
    """A full Redis still records the first batch that it refuses; those after it wait."""
    redis = start(tmp_path)
    writing = Commits(redis.url)
    writing.start()
    await writing.pipe.wait_usable()
    redis.run("HSET", keys.PROCESSING, "1", "raw", "2", "raw")
    redis.run("CONFIG", "SET", "maxmemory", "1")
    written = [asyncio.Event() for _ in range(3)]

    def record(number: int, *more: str) -> None:
        fields: list[str | bytes] = [str(number), "sealed", *more]
        writing.record_until(time.time() + 60, fields, written[number].set, lambda: None)

    record(0)  # settled meanwhile: its field is gone
    record(1, "1.7", "sealed")
    await asyncio.wait_for(written[1].wait(), 10)
    await eventually(lambda: redis.run("HGET", keys.PROCESSING, "1") == b"sealed")
    record(2)
    refused = writing.refused
    await eventually(lambda: writing.refused >= refused + 2)
    found = redis.client().hgetall(keys.PROCESSING)
    assert found == {b"1": b"sealed", b"1.7": b"sealed", b"2": b"raw"}
    assert not written[2].is_set()
    redis.run("CONFIG", "SET", "maxmemory", "0")
    await asyncio.wait_for(written[2].wait(), 10)
    await writing.aclose(5.0)
    redis.remove()


async def test_what_expires_before_it_is_written_is_given_up(valkey: RedisServer) -> None:
    told: list[str] = []
    writing = Commits(valkey.url)
    written, given_up = (lambda: told.append("written")), (lambda: told.append("given up"))
    writing.record_until(time.time() - 1, ["late", "x"], written, given_up)
    writing.start()
    await asyncio.wait_for(writing.applied(), 10)
    assert told == ["given up"]
    assert not valkey.run("EXISTS", keys.PROCESSING)
    await writing.aclose(5.0)


@pytest.mark.parametrize("start", [start_valkey, start_redis62])
@pytest.mark.parametrize("lost", list(Direction))
async def test_a_redis_that_never_answers_is_left_and_nothing_is_written_twice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start: Callable[[Path], RedisServer],
    lost: Direction,
) -> None:
    """A Redis that never answers is disconnected, and nothing is written twice.

    Data written on the abandoned connection may be executed much later.
    """
    monkeypatch.setattr(commits, "ANSWER_S", 0.5)
    redis = start(tmp_path)
    async with tcp_proxy(("127.0.0.1", redis.port)) as proxy:
        writing = Commits(f"redis://127.0.0.1:{proxy.port}/0")
        writing.start()
        await writing.pipe.wait_usable()
        proxy.stall(lost)
        (stalled,) = proxy.connections
        for number in range(3):
            writing.add(command("LPUSH", "once", str(number)))
            await asyncio.sleep(0)  # the first is a batch by itself
        asked = asyncio.create_task(writing.ask("GET", "what waits behind it"))
        await asyncio.wait_for(writing.applied(), 10)
        assert await asyncio.wait_for(asked, 10) is None
        proxy.resume(lost)
        await eventually(lambda: stalled not in proxy.connections)
        assert redis.run("LRANGE", "once", 0, -1) == [b"2", b"1", b"0"]
        await writing.aclose(5.0)
    redis.remove()


async def test_who_is_fenced_off_goes_on(valkey: RedisServer, writing: Commits) -> None:
    """A gateway that is fenced off recovers.

    A second gateway on the same lists is a mistake, but loses no entry.
    """
    other = Commits(valkey.url)
    other.start()
    await other.pipe.wait_usable()
    writing.add(command("LPUSH", "once", "x"))
    await asyncio.wait_for(writing.applied(), 10)
    other.add(command("LPUSH", "once", "y"))
    await asyncio.wait_for(other.applied(), 10)
    assert sorted(valkey.run("LRANGE", "once", 0, -1)) == [b"x", b"y"]
    await other.aclose(5.0)


async def test_a_delivered_request_is_in_redis_when_its_module_goes_on(
    valkey: RedisServer, writing: Commits
) -> None:
    """A delivered request is in Redis before its module continues.

    Only then may an upload be recorded as announced: a kill may come at any moment.
    """
    context = module_context(writing)
    valkey.run("CLIENT", "PAUSE", 60_000, "WRITE")
    delivered = asyncio.create_task(context.deliver(a_request("reports.new")))
    await asyncio.sleep(0.1)
    assert not delivered.done()
    valkey.run("CLIENT", "UNPAUSE")
    await asyncio.wait_for(delivered, 10)
    assert valkey.run("LLEN", "msgbus.reports.new") == 1
    await asyncio.wait_for(writing.applied(), 10)  # nothing waits: at once


@pytest.mark.parametrize(
    "name", ["processing", "committed", "seen", "dead", "system.local", "module.x", "backlog.1", ""]
)
async def test_no_module_delivers_into_the_keys_of_the_gateway(
    valkey: RedisServer, writing: Commits, name: str
) -> None:
    """No module delivers into the gateway's own keys.

    The command comes from another twin, which names it for the arrival of its upload.
    """
    valkey.run("HSET", "msgbus.processing", "field", "value")
    with pytest.raises(ValueError, match="no service"):
        await module_context(writing).deliver(a_request(name))
    if name:
        with pytest.raises(RefusedError, match="peer's own"):
            check_command(name)
    await writing.applied()
    assert {*valkey.run("KEYS", "msgbus.*")} == {b"msgbus.processing", b"msgbus.committed"}
    assert valkey.run("TTL", "msgbus.processing") == -1


def module_context(writing: Commits) -> ModuleContext:
    """Return the context of a module that makes no calls."""
    store = ModuleStore(writing, "test")
    calls = Calls(None, None, None)  # type: ignore[arg-type]
    return ModuleContext(1, store, calls, QueueWrites(writing, Counter()), lambda request: False)


def a_request(name: str) -> Request:
    deadline = int(time.time()) + 60
    return Request(str(uuid.uuid4()), Address(7), name, b"", None, None, deadline)


async def test_dead_letters_of_a_redis_that_does_not_answer(
    valkey: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading dead letters from a Redis that does not answer fails, and does not wait for ever."""
    monkeypatch.setattr(dead_letters, "TIMEOUT_S", 0.3)
    valkey.pause()
    try:
        with pytest.raises(RedisError):
            await asyncio.wait_for(dead_letters.read(valkey.url), 10)
    finally:
        valkey.resume()
