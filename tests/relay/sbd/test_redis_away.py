"""Redis that is unavailable or silent: what continues, what is lost and counted, what resumes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.sbd import crossing
from relay.sbd.options import LossReason
from relay.sbd.sharing import CHANNEL
from tests.proto.sbd.pairs import Identity
from tests.relay.sbd.workers import Client, until, workers
from tests.support.redis_servers import RedisServer, start_valkey

ONE, TWO, THREE, FOUR = (Identity(number) for number in range(1, 5))
PACKET_BYTES = 10_000


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = start_valkey(tmp_path / "redis")
    yield server
    server.remove()


def texts(client: Client) -> list[bytes]:
    return [packet.payload for packet in client.received()]


def listening(redis: RedisServer) -> int:
    """Return how many workers receive what other workers publish."""
    _, count = redis.run("PUBSUB", "NUMSUB", CHANNEL)
    return int(count)


async def arrives(source: Client, target: Client) -> None:
    source.send(target.key, b"here")
    await until(lambda: b"here" in texts(target))


async def test_redis_away(redis: RedisServer) -> None:
    """Local packets are delivered, each other one is counted, and all keys return with Redis."""
    async with workers(redis) as (a, b):
        one, two, far = (
            await a.connected(ONE),
            await a.connected(TWO),
            await b.connected(THREE),
        )
        await arrives(one, far)
        redis.kill()
        await until(lambda: not a.crossing.usable and not b.crossing.usable)
        newcomer = a.connect(FOUR)
        assert newcomer.ready
        for number in range(5):
            one.send(far.key, b"lost")
            one.send(two.key, b"%d" % number)
            two.send(newcomer.key, b"%d" % number)
        assert texts(two) == texts(newcomer) == [b"0", b"1", b"2", b"3", b"4"]
        await until(lambda: a.switch.counts.lost == {LossReason.REDIS_AWAY: 5})
        redis.start()
        await until(lambda: redis.run("HLEN", "sbd:keys") == 4)
        await until(lambda: listening(redis) == 2)
        await arrives(one, far)
        await arrives(far, newcomer)
        assert texts(far) == []
        assert b.switch.counts.lost == {}


async def test_redis_that_does_not_answer(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets wait for Redis up to a bound and are delivered in order; the others are counted."""
    monkeypatch.setattr(crossing, "MAX_FLYING_BYTES", 10 * PACKET_BYTES)
    async with workers(redis) as (a, b):
        one, two, far, unknown = (
            await a.connected(ONE),
            await a.connected(TWO),
            await b.connected(THREE),
            await b.connected(FOUR),
        )
        await arrives(one, far)
        redis.pause()
        sent = [b"%2d" % number + bytes(PACKET_BYTES) for number in range(20)]
        for text in sent:
            one.send(far.key, text)
            one.send(two.key, text[:2])
            await until(lambda: not a.crossing._out)
        assert texts(two) == [text[:2] for text in sent]
        lost = a.switch.counts.lost[LossReason.CROSSING_FULL]
        assert 9 <= lost <= 11
        one.send(unknown.key, b"nor for a key that is looked up")
        assert a.switch.counts.lost[LossReason.CROSSING_FULL] == lost + 1
        redis.resume()
        got: list[bytes] = []
        await until(lambda: got.extend(texts(far)) or len(got) == 20 - lost)
        assert got == sent[: 20 - lost]
        await arrives(one, unknown)
        await arrives(one, far)


async def test_packets_for_keys_that_are_looked_up_have_one_bound(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound applies to all packets together, however many keys they are for."""
    monkeypatch.setattr(crossing, "MAX_FLYING_BYTES", 10 * PACKET_BYTES)
    async with workers(redis, 1) as (a,):
        one = await a.connected(ONE)
        redis.pause()
        for number in range(100, 200):
            one.send(Identity(number).key, bytes(PACKET_BYTES))
        assert len(a.crossing._asking) <= 11
        assert a.switch.counts.lost[LossReason.CROSSING_FULL] >= 89
        redis.resume()
        await until(lambda: a.switch.counts.lost.total() == 100)
        one.send(TWO.key, b"counted as absent again")
        await until(lambda: a.switch.counts.lost[LossReason.ABSENT] >= 11)
        assert a.crossing._flying_bytes == 0
