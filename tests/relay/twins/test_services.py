"""`relay.twins.services` and the registry source: how changes reach workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connections, transaction
from redis.asyncio import Redis

from relay.access.actor import SYSTEM
from relay.ops import pending
from relay.queues import keys
from relay.twins import services
from relay.twins.cache import TwinCache
from relay.twins.fields import TwinValues
from relay.twins.models import Twin
from relay.twins.registry import RegistrySource
from relay.twins.source import TwinSourceError
from tests.support.redis_servers import RedisServer

ACCOUNT = bytes(range(32))


def twin(number: int, *relays: str) -> TwinValues:
    return TwinValues(number, ACCOUNT, None, relays)


@pytest.fixture
async def source() -> AsyncIterator[RegistrySource]:
    registry = RegistrySource()
    yield registry
    await registry.close()


@pytest.mark.django_db
def test_ids_are_in_range_in_the_database_too() -> None:
    for number in (0, 2**32):
        with pytest.raises(IntegrityError), transaction.atomic():
            Twin.objects.create(id=number, account=ACCOUNT)
    with pytest.raises(ValidationError):
        Twin(id=2**32, account=ACCOUNT).full_clean()


@pytest.mark.django_db
def test_a_twin_of_the_chain_becomes_one_of_the_registry() -> None:
    """Its height and its age in the chain end with it."""
    chain = {"source": Twin.Source.CHAIN, "height": 70, "stale_since": 80}
    Twin.objects.create(id=7, account=ACCOUNT, relays="there", **chain)
    assert not services.put_twin(twin(7, "here"), actor=SYSTEM)
    row = Twin.objects.get(id=7)
    assert (row.source, row.height, row.stale_since) == (Twin.Source.REGISTRY, None, None)
    assert row.record().version == 2


@pytest.mark.django_db(transaction=True)
def test_changes_are_announced_after_the_commit(site_redis: RedisServer) -> None:
    site_redis.run("HSET", keys.TWINS, "7", "a", "8", "b", "9", "c")
    with transaction.atomic():
        assert services.put_twin(twin(7, "here"), actor=SYSTEM)
        assert site_redis.run("EXISTS", keys.TWINS_VERSION) == 0
    assert site_redis.run("GET", keys.TWINS_VERSION) == b"1"
    assert site_redis.run("HKEYS", keys.TWINS) == [b"8", b"9"]
    assert services.remove_twins([7, 8], actor=SYSTEM) == 1
    assert site_redis.run("HKEYS", keys.TWINS) == [b"9"]
    assert services.remove_twins([7, 8], actor=SYSTEM) == 0
    assert site_redis.run("GET", keys.TWINS_VERSION) == b"2"


@pytest.mark.django_db(transaction=True)
def test_a_change_that_is_rolled_back_is_not_announced(site_redis: RedisServer) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        services.put_twin(twin(7), actor=SYSTEM)
        raise ZeroDivisionError
    assert site_redis.run("EXISTS", keys.TWINS_VERSION) == 0


def test_what_is_published(site_redis: RedisServer) -> None:
    with site_redis.client() as client, client.pubsub(ignore_subscribe_messages=True) as news:
        news.subscribe(keys.TWINS_CHANNEL)
        news.get_message(timeout=5)
        for changed, expected in (
            ([7, 8], b"1 7,8"),
            (None, b"2 *"),
            (list(range(1, services.MAX_ANNOUNCED + 2)), b"3 *"),
            (list(range(1, services.MAX_ANNOUNCED + 1)), None),
        ):
            assert services.announce(changed)
            message = news.get_message(timeout=5)
            assert message is not None and expected in (None, message["data"])
        assert services.announce([])
        assert news.get_message(timeout=0) is None


@pytest.mark.django_db(transaction=True)
def test_without_redis_the_change_is_kept(no_redis: None) -> None:
    assert services.put_twin(twin(7), actor=SYSTEM)
    assert Twin.objects.filter(pk=7).exists()
    assert pending.waiting() == ["twins"]


@pytest.mark.django_db(transaction=True)
async def test_a_worker_sees_a_change(site_redis: RedisServer, source: RegistrySource) -> None:
    put, remove = (
        sync_to_async(partial(services.put_twin, actor=SYSTEM)),
        sync_to_async(partial(services.remove_twins, actor=SYSTEM)),
    )
    redis = Redis.from_url(site_redis.url, protocol=2)
    cache = TwinCache(source, redis.execute_command)
    assert await cache.look_up(7) is None
    await put(twin(7, "here"))
    cache.invalidate([7])
    found = await cache.look_up(7)
    assert found is not None
    assert (found.account, found.relays, found.version) == (ACCOUNT, ("here",), 1)
    await put(twin(7, "there", "here"))
    cache.invalidate([7])
    found = await cache.look_up(7)
    assert found is not None
    assert (found.relays, found.version) == (("there", "here"), 2)
    await remove([7])
    cache.invalidate([7])
    assert await cache.look_up(7) is None
    await cache.close()
    await redis.aclose()


@pytest.mark.django_db(transaction=True)
async def test_the_registry_as_a_source(source: RegistrySource) -> None:
    assert await source.highest_id() == 0
    for number in (3, 5):
        await sync_to_async(Twin.objects.create)(id=number, account=ACCOUNT, relays="a_b")
    assert await source.highest_id() == 5
    found = await source.fetch([3, 4, 5])
    assert sorted(found) == [3, 5]
    assert found[3] == Twin(id=3, account=ACCOUNT, relays="a_b", version=1).record()


@pytest.mark.django_db(transaction=True)
async def test_a_database_that_fails_is_a_source_that_is_away(
    source: RegistrySource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**expressions: object) -> None:
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT * FROM no_such_table")

    monkeypatch.setattr(Twin.objects, "aggregate", broken)
    with pytest.raises(TwinSourceError, match="database"):
        await source.highest_id()
