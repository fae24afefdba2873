"""Reading a system list: every entry once and in order, whatever happens to a read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from peer.gateway import keys, queues
from peer.gateway.bounds import TAKE_BYTES, TAKE_ENTRIES
from peer.gateway.queues import Fields, SystemQueue
from tests.support.redis_servers import RedisServer
from tests.support.waiting import eventually


@dataclass
class Reader:
    """Collects entries, and counts the reads."""

    taken: list[bytes] = field(default_factory=list)
    reads: int = 0
    on_taken: Callable[[bytes], None] = lambda entry: None

    def take(self, entry_field: str, entry: bytes) -> None:
        self.taken.append(entry)
        self.on_taken(entry)

    def read(self) -> None:
        self.reads += 1


@pytest.fixture
def reader() -> Reader:
    return Reader()


@pytest.fixture
async def queue(valkey: RedisServer, reader: Reader) -> AsyncIterator[SystemQueue]:
    queue = SystemQueue(
        valkey.url,
        *(keys.LOCAL, queues.REQUEST, Fields()),
        *(reader.take, reader.read, lambda: None),
    )
    yield queue
    await queue.pipe.close()


@contextlib.asynccontextmanager
async def running(queue: SystemQueue) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(queue.run())
    await queue.pipe.wait_usable()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def push(valkey: RedisServer, numbers: range) -> list[bytes]:
    entries = [b"%d" % number for number in numbers]
    valkey.run("LPUSH", keys.LOCAL, *entries)
    return entries


async def test_entries_come_in_order(
    valkey: RedisServer, queue: SystemQueue, reader: Reader
) -> None:
    entries = push(valkey, range(3 * TAKE_ENTRIES))
    async with running(queue):
        await eventually(lambda: len(reader.taken) >= len(entries))
        entries += push(valkey, range(1000, 1005))
        await eventually(lambda: len(reader.taken) >= len(entries))
    assert reader.taken == entries
    assert 0 < reader.reads < len(entries)
    assert valkey.run("HLEN", keys.PROCESSING) == len(entries)


async def test_large_entries_are_taken_a_few_at_a_time(
    valkey: RedisServer, queue: SystemQueue, reader: Reader
) -> None:
    entries = [bytes([ord("a") + number]) * (TAKE_BYTES * 2 // 3) for number in range(9)]
    valkey.run("LPUSH", keys.LOCAL, *entries)
    left: list[int] = []
    reader.on_taken = lambda entry: left.append(valkey.run("LLEN", keys.LOCAL))
    async with running(queue):
        await eventually(lambda: len(reader.taken) >= len(entries))
    assert reader.taken == entries
    assert left == [7, 7, 5, 5, 3, 3, 1, 1, 0]  # two are above the bound of one step
    held = valkey.run("HGETALL", keys.PROCESSING)
    assert [value for _, value in sorted(held.items())] == [b"r" + each for each in entries]


async def test_nothing_is_taken_during_a_pause(
    valkey: RedisServer, queue: SystemQueue, reader: Reader
) -> None:
    reader.on_taken = lambda entry: queue.pause()
    async with running(queue):
        entries = push(valkey, range(1))
        await eventually(lambda: reader.taken == entries)
        entries += push(valkey, range(1, 3))
        await queue.pipe.call("PING")  # answered after every read before it
        assert not queue.taking
        assert valkey.run("LLEN", keys.LOCAL) == 2
        reader.on_taken = lambda entry: None
        queue.resume()
        await eventually(lambda: reader.taken == entries)


async def test_what_the_owner_raises_ends_it(
    valkey: RedisServer, queue: SystemQueue, reader: Reader
) -> None:
    def fail(entry: bytes) -> None:
        raise ZeroDivisionError

    reader.on_taken = fail
    async with running(queue) as task:
        push(valkey, range(1))
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(asyncio.shield(task), 10)


async def test_a_redis_that_does_not_answer_is_connected_to_anew(
    valkey: RedisServer, queue: SystemQueue, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "WAIT_S", 0.2)
    monkeypatch.setattr(queues, "_ANSWER_S", 0.1)
    async with running(queue):
        # The read in Redis blocks for 20 s; the queue no longer waits that long for it.
        await eventually(lambda: queue.pipe.connections > 1)
        entries = push(valkey, range(1))
        await eventually(lambda: reader.taken == entries or valkey.run("HLEN", keys.PROCESSING))


async def test_a_read_that_redis_refuses_is_tried_again(
    valkey: RedisServer, queue: SystemQueue, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(queue):
        await eventually(lambda: valkey.run("INFO", "clients")["blocked_clients"] == 1)
        valkey.run("SCRIPT", "FLUSH")  # the read that is under way will not find its script
        entries = push(valkey, range(2))
        await eventually(lambda: reader.taken == entries)
    refusals = [each for each in caplog.messages if "redis refused to be read" in each]
    assert len(refusals) == 1
    assert queue.pipe.connections > 1
