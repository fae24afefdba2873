"""The overview: alarms first, figures compared with earlier ones, and the partner relays."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from relay.access.matrix import Role
from relay.alarms.models import Alarm, Evaluation
from relay.history import seconds
from relay.history.models import Point
from relay.history.packing import pack
from relay.ops.redis_client import client as redis
from relay.queues import keys
from tests.relay.dashboard.conftest import SignIn
from tests.support.published import publish
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(sign_in: SignIn, site_redis: RedisServer) -> Client:
    return sign_in(Role.VIEWER)


def shown(client: Client, part: str = "") -> str:
    answer = client.get("/console/", headers={"HX-Target": part} if part else {})
    assert answer.status_code == 200
    return str(answer.content.decode())


def watched() -> None:
    Evaluation.objects.update_or_create(pk=Evaluation.ONLY, defaults={"done": time.time()})


def fire(subject: str, severity: str = "warning", state: str = "firing") -> Alarm:
    now = timezone.now()
    return Alarm.objects.create(
        rule="partner_down", subject=subject, severity=severity, state=state, since=now,
        fired_at=now, detail=f"about {subject}",
    )  # fmt: skip


def test_all_is_quiet_only_while_somebody_watches(client: Client) -> None:
    assert "Alarms are not evaluated" in shown(client)
    watched()
    fire("of no trouble", "info")
    page = shown(client)
    assert "No alarms" in page and "No alarm fires" in page


def test_what_cannot_wait_comes_first(client: Client) -> None:
    watched()
    for number in range(9):
        fire(f"warned-{number}.example")
    fire("down.example", "critical")
    fire("known.example", state="acknowledged")
    part = shown(client, "attention")
    assert "<html" not in part
    assert part.index("about down.example") < part.index("about warned-8.example")
    assert "2 more alarms" in part and "about known.example" not in part
    assert "1 more is acknowledged or silenced" in part
    assert "Acknowledge" not in part


def test_who_may_acknowledges_from_here(sign_in: SignIn, site_redis: RedisServer) -> None:
    alarm = fire("down.example", "critical")
    part = shown(sign_in(Role.OPERATOR), "attention")
    assert f'href="/console/alarms/{alarm.pk}/acknowledge/?next=/console/"' in part


def test_tiles_tell_of_now_and_of_the_past(client: Client) -> None:
    now = int(time.time())
    week_ago = now - 7 * 86_400
    Point.objects.create(
        resolution_s=60, at=week_ago - week_ago % 60, figures=pack({"drops": 2, "sessions": 8})
    )
    seconds.put(redis(), now, {"drops": 6.5, "sessions": 8, "commit_p99": 0.25})
    part = shown(client, "tiles")
    assert '<data class="c-figure" data-series="drops" data-kind="rate" value="6.5"' in part
    assert ">250 ms</data>" in part
    assert 'c-warning" title="it was 2/s a week ago"><span aria-hidden="true">↑</span> 3.25' in part
    assert (
        'c-idle" title="it was 8 a week ago"><span aria-hidden="true">=</span> about the s' in part
    )


def test_other_relays_in_trouble_come_first(client: Client) -> None:
    now = time.time()
    for domain, state in {
        "a.example": {"last_success": now},
        "b.example": {"failures": 3, "retry_at": now + 90, "last_error": "refused <b>"},
    }.items():
        redis().sadd(keys.PARTNERS, domain)
        redis().hset(keys.partner(domain), mapping=state)
    part = shown(client, "around")
    assert part.index("b.example:") < part.index("a.example:")
    assert "3 failures in a row" in part and "refused &lt;b&gt;" in part


def test_it_asks_the_database_little(
    sign_in: SignIn, site_redis: RedisServer, django_assert_max_num_queries: Any
) -> None:
    owner = sign_in(Role.OWNER)
    for number in range(12):
        fire(f"relay-{number}.example")
        redis().sadd(keys.PARTNERS, f"relay-{number}.example")
    shown(owner)  # fills caches and imports modules
    with django_assert_max_num_queries(16):
        shown(owner)
    for part in ("attention", "tiles", "around"):
        with django_assert_max_num_queries(9):
            shown(owner, part)


@pytest.mark.usefixtures("no_redis")
def test_alarms_are_told_while_redis_is_away(sign_in: SignIn) -> None:
    watched()
    fire("down.example", "critical")
    page = shown(sign_in(Role.VIEWER))
    assert "about down.example" in page
    assert page.count("Redis does not answer") == 2


def test_the_busiest_twins(client: Client, site_redis: RedisServer) -> None:
    assert "No twin has sent or received anything" in shown(client, "around")
    publish(site_redis, "8:a", 1, messages_in=1)
    publish(site_redis, "7:a", 1, messages_in=4, messages_out=4.5)
    publish(site_redis, "7", 1, "other", messages_in=4)
    part = shown(client, "around")
    assert part.index('href="/console/twins/7/"') < part.index('href="/console/twins/8/"')
    assert "12.5" in part and "over the last 2 s" in part
