"""`relay.limits.services`: `relay:control` says the same as the database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from relay.access.actor import SYSTEM, Actor
from relay.access.errors import Invalid
from relay.limits import services, waiting
from relay.limits.models import TwinLimit
from relay.ops import control, pending
from relay.queues import keys
from relay.queues.charging import Held
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)


def decided(server: RedisServer) -> dict[str, str]:
    return {name: value for name, value in fields(server).items() if name != "version"}


def test_limits(site_redis: RedisServer) -> None:
    services.set_limit(7, 100, 5000, actor=SYSTEM)
    services.set_limit(8, 0, 0, actor=SYSTEM)
    assert decided(site_redis) == {"limit:7": "100 5000", "limit:8": "0 0"}
    services.set_limit(7, None, None, actor=SYSTEM)
    assert decided(site_redis) == {"limit:8": "0 0"}
    assert services.remove([8, 9], actor=SYSTEM) == 1
    assert decided(site_redis) == {}


def test_bans(site_redis: RedisServer) -> None:
    services.set_limit(7, 1, 2, actor=SYSTEM)
    services.ban(7, "spam", actor=SYSTEM)
    services.ban(8, actor=SYSTEM)
    assert decided(site_redis) == {"limit:7": "1 2", "ban:7": "spam", "ban:8": "banned"}
    services.lift_ban(7, actor=SYSTEM)
    assert decided(site_redis) == {"limit:7": "1 2", "ban:8": "banned"}
    assert TwinLimit.objects.get(twin=7).ban_reason == "spam"


def test_a_ban_with_an_end(site_redis: RedisServer) -> None:
    now = timezone.now()
    services.ban(7, "spam", now + timedelta(hours=1), actor=SYSTEM)
    assert services.lift_expired_bans(now) == 0
    assert "ban:7" in decided(site_redis)
    assert services.lift_expired_bans(now + timedelta(hours=1)) == 1
    assert decided(site_redis) == {}
    assert not TwinLimit.objects.get(twin=7).banned
    assert services.lift_expired_bans(now + timedelta(hours=2)) == 0


def test_a_ban_that_was_made_longer_is_not_lifted(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    services.ban(7, "spam", now + timedelta(hours=1), actor=SYSTEM)
    services.ban(8, "spam", now + timedelta(hours=1), actor=SYSTEM)
    lift = services.audit.change

    def slow(actor: Actor, action: str, *, target: object) -> Any:
        """Extend the ban before it is lifted."""
        if action == "ban.lift" and target == 7:
            services.ban(7, "more spam", now + timedelta(days=1), actor=SYSTEM)
        return lift(actor, action, target=target)

    monkeypatch.setattr(services.audit, "change", slow)
    assert services.lift_expired_bans(now + timedelta(hours=2)) == 1
    assert decided(site_redis) == {"ban:7": "more spam"}


def test_publish_all_heals_what_was_missed(site_redis: RedisServer) -> None:
    services.ban(7, "spam", actor=SYSTEM)
    services.set_limit(8, 1, 2, actor=SYSTEM)
    site_redis.run("HDEL", keys.CONTROL, "ban:7")
    site_redis.run("HSET", keys.CONTROL, "ban:9", "stale", "limit:8", "9 9", "limit", "5 6")
    services.publish_all()
    assert decided(site_redis) == {"ban:7": "spam", "limit:8": "1 2"}


@pytest.mark.parametrize(
    "values",
    [
        {"count": 1},
        {"size": 1},
        {"count": 0, "size": 5},
        {"count": 5, "size": 0},
        {"banned_until": timezone.now()},
        {"banned": True, "ban_reason": "x" * 121},
        {"count": -1, "size": -1},
    ],
)
def test_refusals(site_redis: RedisServer, values: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        services.save(TwinLimit(twin=7, **values), actor=SYSTEM)
    assert not TwinLimit.objects.exists()
    assert fields(site_redis) == {}


def test_without_redis_the_decision_is_kept(no_redis: None) -> None:
    services.ban(7, actor=SYSTEM)
    assert TwinLimit.objects.get(twin=7).banned
    assert pending.waiting() == ["limits"]
    with pytest.raises(control.ControlError):
        services.publish_all()


def test_bounds_of_what_waits(site_redis: RedisServer) -> None:
    services.set_waiting(7, 100, None, 5, actor=SYSTEM)
    services.set_limit(8, 1, 2, actor=SYSTEM)
    assert decided(site_redis) == {"waiting:7": "100 0 5", "limit:8": "1 2"}
    site_redis.run("DEL", keys.CONTROL)
    services.publish_all()
    assert decided(site_redis) == {"waiting:7": "100 0 5", "limit:8": "1 2"}
    services.set_waiting(7, None, None, None, actor=SYSTEM)
    assert decided(site_redis) == {"limit:8": "1 2"}
    with pytest.raises(Invalid):
        services.set_waiting(7, -1, None, None, actor=SYSTEM)


def test_what_waits_of_a_twin_beside_its_bounds(site_redis: RedisServer) -> None:
    services.set_waiting(7, 200, None, 8, actor=SYSTEM)
    site_redis.run("HSET", keys.received(7), "messages", "50", "bytes", "9000", "queues", "6")
    site_redis.run("HSET", keys.sent(7), "messages", "90", "bytes", "1", "queues", "1")
    found = waiting.of_twin(7)
    assert found.received == Held(50, 9000, 6, 0)
    assert found.sent == Held(90, 1, 1, 0)
    assert found.bounds.messages == 200 and found.bounds.queues == 8
    assert found.filled_percent == 75.0
    assert waiting.of_twin(9).received == Held(0, 0, 0, 0)
