"""`relay.ops.housekeeping` and `relay.ops.accounts`."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.utils import timezone

from relay.access.actor import SYSTEM
from relay.limits import services as limits
from relay.limits.models import TwinLimit
from relay.ops import accounts, housekeeping
from relay.sessions.models import Session
from tests.relay.conftest import AddWorker
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db


def next_minute(server: RedisServer) -> None:
    server.run("DEL", "relay:housekeeping")


def session(worker: str, twin: int) -> None:
    Session.objects.create(twin=twin, epoch=1, worker=worker, opened_at=timezone.now())


def lost() -> set[int]:
    return set(Session.objects.filter(close_reason="worker_lost").values_list("twin", flat=True))


def test_one_process_does_it(site_redis: RedisServer) -> None:
    assert housekeeping.run_due()
    assert not housekeeping.run_due()
    next_minute(site_redis)
    assert housekeeping.run_due()


def test_a_worker_is_lost_when_it_was_missing_twice(
    site_redis: RedisServer, add_worker: AddWorker
) -> None:
    add_worker("alive")
    session("alive", 1)
    session("dead", 2)
    housekeeping.run_due()
    assert lost() == set(), "all workers may look dead for a second after an outage of Redis"
    next_minute(site_redis)
    housekeeping.run_due()
    assert lost() == {2}


def test_a_worker_that_came_back_is_not_lost(
    site_redis: RedisServer, add_worker: AddWorker
) -> None:
    session("slow", 1)
    housekeeping.run_due()
    add_worker("slow")
    for _ in range(2):
        next_minute(site_redis)
        housekeeping.run_due()
    assert lost() == set()


def test_expired_bans_are_lifted(site_redis: RedisServer) -> None:
    limits.ban(7, actor=SYSTEM)
    TwinLimit.objects.update(banned_until=timezone.now() - timedelta(seconds=1))
    housekeeping.run_due()
    assert not TwinLimit.objects.get(twin=7).banned


def test_without_redis_it_is_put_off(no_redis: None, caplog: pytest.LogCaptureFixture) -> None:
    assert not housekeeping.run_due()
    assert "put off" in caplog.text


def test_the_first_operator_is_made_once() -> None:
    made = accounts.make_first_operator()
    assert made is not None
    assert made.name == "operator"
    assert len(made.password) >= 20
    user = authenticate(username=made.name, password=made.password)
    assert user is not None and user.is_superuser  # type: ignore[attr-defined]
    assert accounts.make_first_operator() is None


def test_an_operator_who_may_not_sign_in_does_not_count() -> None:
    get_user_model().objects.create_user("operator", is_active=False)
    made = accounts.make_first_operator()
    assert made is not None
    assert made.name.startswith("operator-")
