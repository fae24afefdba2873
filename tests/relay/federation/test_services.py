"""`relay.federation.services`: `relay:control` says the same as the database."""

from __future__ import annotations

import pytest

from relay.access.actor import SYSTEM
from relay.access.errors import Away, Invalid
from relay.federation import services
from relay.federation.models import RelayNode
from relay.ops import pending
from relay.queues import keys
from tests.relay.federation.stored import PARTNER, add_partner
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def decided(server: RedisServer) -> dict[str, str]:
    return {name: value for name, value in fields(server).items() if name != "version"}


def test_decisions(site_redis: RedisServer) -> None:
    services.trust(PARTNER, actor=SYSTEM)
    services.pause(PARTNER, actor=SYSTEM)
    services.block("a.example:8080", actor=SYSTEM)
    assert decided(site_redis) == {
        "relay:b.example": "trusted paused",
        "relay:a.example:8080": "blocked",
    }
    services.resume(PARTNER, actor=SYSTEM)
    services.unblock("a.example:8080", actor=SYSTEM)
    services.distrust(PARTNER, actor=SYSTEM)
    assert decided(site_redis) == {}
    assert set(RelayNode.objects.values_list("domain", flat=True)) == {PARTNER, "a.example:8080"}


def test_reset_ends_the_back_off(site_redis: RedisServer) -> None:
    add_partner(site_redis, retry_at=5, failures=3, sent=9)
    site_redis.run("ZADD", keys.failures(PARTNER), 5, "5")
    services.reset(PARTNER, actor=SYSTEM)
    assert site_redis.client().hgetall(keys.partner(PARTNER)) == {b"sent": b"9"}
    assert site_redis.run("EXISTS", keys.failures(PARTNER)) == 0
    assert fields(site_redis)["version"] == "1", "drainers read the state again"


def test_resume_keeps_the_rank(site_redis: RedisServer) -> None:
    services.pause(PARTNER, actor=SYSTEM)
    add_partner(site_redis, retry_at=5, failures=3)
    site_redis.run("ZADD", keys.failures(PARTNER), 5, "5")
    services.resume(PARTNER, actor=SYSTEM)
    assert site_redis.run("EXISTS", keys.partner(PARTNER)) == 0
    assert site_redis.run("EXISTS", keys.failures(PARTNER)) == 1


def test_relays_in_traffic_get_rows(site_redis: RedisServer) -> None:
    services.trust("a.example", actor=SYSTEM)
    for domain in ("a.example", PARTNER, "127.0.0.1:8080", "no_domain", "x" * 300, "sp ace"):
        add_partner(site_redis, domain)
    assert services.discover() == 2
    assert services.discover() == 0
    assert RelayNode.objects.get(domain="a.example").trusted
    assert RelayNode.objects.count() == 3


def test_rows_have_a_bound(site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_NODES", 3)
    for number in range(5):
        add_partner(site_redis, f"r{number}.example")
    assert services.discover() == 3
    assert services.discover() == 0


def test_a_forgotten_relay_is_gone_until_it_is_used(site_redis: RedisServer) -> None:
    add_partner(site_redis, retry_at=5)
    services.block(PARTNER, actor=SYSTEM)
    services.forget([PARTNER], actor=SYSTEM)
    assert decided(site_redis) == {}
    assert not RelayNode.objects.exists()
    assert site_redis.run("EXISTS", keys.partner(PARTNER)) == 0
    assert services.discover() == 0
    add_partner(site_redis)
    assert services.discover() == 1


def test_publish_all_heals_what_was_missed(site_redis: RedisServer) -> None:
    services.trust(PARTNER, actor=SYSTEM)
    site_redis.run("HDEL", keys.CONTROL, f"relay:{PARTNER}")
    site_redis.run("HSET", keys.CONTROL, "relay:stale.example", "blocked", "ban:7", "spam")
    services.publish_all()
    assert decided(site_redis) == {f"relay:{PARTNER}": "trusted", "ban:7": "spam"}


@pytest.mark.parametrize(
    "domain", ["", "a_b", "http://a", "a/b", "a b", "a\n", "a?b", "user@a", "x" * 261]
)
def test_refusals(site_redis: RedisServer, domain: str) -> None:
    with pytest.raises(Invalid):
        services.save(RelayNode(domain=domain), actor=SYSTEM)
    assert fields(site_redis) == {}


def test_without_redis_the_decision_is_kept(no_redis: None) -> None:
    services.block(PARTNER, actor=SYSTEM)
    assert RelayNode.objects.get(domain=PARTNER).blocked
    assert pending.waiting() == ["relays"]
    for attempt in (services.publish_all, lambda: services.reset(PARTNER, actor=SYSTEM)):
        with pytest.raises(Away):
            attempt()
    services.forget([PARTNER], actor=SYSTEM)
    assert not RelayNode.objects.exists()
