"""Relays that are gone: they are forgotten in Redis and in the database, unless an operator decided
something about them.
"""

from __future__ import annotations

import pytest
from redis import Redis

from relay.access.actor import SYSTEM
from relay.federation import counters, forgetting, services
from relay.federation.forgetting import ANSWERED_S, UNANSWERED_S, Forgetting, forget
from relay.federation.models import RelayNode
from relay.queues import keys
from tests.relay.federation.stored import add_partner
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

NOW = 1_000_000_000.0
WEEK_AGO, LONG_AGO = NOW - UNANSWERED_S - 1, NOW - ANSWERED_S - 1


@pytest.fixture
def client(site_redis: RedisServer) -> Redis:
    return site_redis.client()


def known(client: Redis) -> set[bytes]:
    return set(client.smembers(keys.PARTNERS))


def test_those_that_are_gone(site_redis: RedisServer, client: Redis) -> None:
    add_partner(site_redis, "invented.example", last_failure=WEEK_AGO, failures=9)
    add_partner(site_redis, "down.example", last_failure=WEEK_AGO + 2, failures=9)
    add_partner(site_redis, "once.example", last_failure=LONG_AGO, last_success=LONG_AGO - 5)
    add_partner(site_redis, "worked.example", last_failure=WEEK_AGO, last_success=WEEK_AGO)
    add_partner(site_redis, "writes.example", heard=WEEK_AGO)
    add_partner(site_redis, "declines.example")
    client.zadd(keys.failures("invented.example"), {"5": 5})
    for domain in ("invented.example", "down.example"):
        client.hset(keys.FEDERATION_COUNTERS, counters.field(counters.ERROR, domain), 3)
    assert services.discover() == 6
    assert forget(client, NOW) == 2
    kept = {"down.example", "worked.example", "writes.example", "declines.example"}
    assert known(client) == {domain.encode() for domain in kept}
    assert set(RelayNode.objects.values_list("domain", flat=True)) == kept
    assert not client.exists(keys.partner("invented.example"), keys.failures("invented.example"))
    assert client.hkeys(keys.FEDERATION_COUNTERS) == [b"error|down.example"]
    assert forget(client, NOW) == 0


def test_those_without_a_row(site_redis: RedisServer, client: Redis) -> None:
    add_partner(site_redis, "invented.example", last_failure=WEEK_AGO)
    assert forget(client, NOW) == 1
    assert known(client) == set()


def test_what_was_decided_or_noted_is_kept(site_redis: RedisServer, client: Redis) -> None:
    decide = (services.trust, services.pause, services.block)
    for number, each in enumerate(decide):
        add_partner(site_redis, f"{number}.example", last_failure=LONG_AGO)
        each(f"{number}.example", actor=SYSTEM)
    add_partner(site_redis, "noted.example", last_failure=LONG_AGO)
    RelayNode.objects.create(domain="noted.example", note="comes back in spring")
    assert forget(client, NOW) == 0
    assert len(known(client)) == RelayNode.objects.count() == 4


def test_they_are_looked_for_once_an_hour(site_redis: RedisServer, client: Redis) -> None:
    time_s = 0.0
    looking = Forgetting(lambda: time_s)
    for number, expected in enumerate((1, 0, 2)):
        add_partner(site_redis, f"{number}.example", last_failure=WEEK_AGO)
        time_s = number * (forgetting.EVERY_S / 2)
        assert looking.look(client, NOW) == expected
