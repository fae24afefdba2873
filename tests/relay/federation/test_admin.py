"""The operator's pages of federation: relays, dead letters, the outbox."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import User
from django.test import Client

from relay.federation.models import RelayNode
from relay.queues import keys
from tests.relay.federation.stored import PARTNER, add_dead, add_partner, add_pending, message
from tests.relay.ops.test_admin import page
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

RELAYS = "/admin/relay_federation/relaynode/"
DEAD = "/admin/relay_federation/deadletter/"
PENDING = f"{DEAD}pending/"


def act(client: Client, action: str, *domains: str) -> None:
    selected = list(domains) or [PARTNER]
    answer = client.post(RELAYS, {"action": action, "_selected_action": selected})
    assert answer.status_code == 302, answer.content


@pytest.mark.parametrize("path", [RELAYS, f"{RELAYS}add/", DEAD, PENDING])
def test_empty_pages(admin_client: Client, site_redis: RedisServer, path: str) -> None:
    assert "Dead letters" in page(admin_client, path), "the menu"


def test_a_relay_in_traffic_is_shown_as_it_does(
    admin_client: Client, site_redis: RedisServer
) -> None:
    now = time.time()
    add_partner(site_redis, retry_at=now + 40.4, failures=2, kind="ours", last_error="answer 503",
                last_success=now - 7200, last_failure=now - 180, sent=4242, received=1717,
                latency_ms=12.34)  # fmt: skip
    for at in (now - 10, now - 20, now - 7000):
        site_redis.run("ZADD", keys.failures(PARTNER), at, f"{at}")
    add_pending(site_redis, message())
    text = page(admin_client, RELAYS)
    for expected in (PARTNER, "ours", "answer 503", "40 s more", "4242 / 1717", "12.3 ms",
                     "2, the last 3 min ago", "2 h 0 min ago", "oldest for"):  # fmt: skip
        assert expected in text, expected
    assert RelayNode.objects.get().domain == PARTNER


def test_decisions(admin_client: Client, site_redis: RedisServer) -> None:
    add_partner(site_redis)
    page(admin_client, RELAYS)
    for action, flags in (
        ("trust_selected", "trusted"),
        ("pause_selected", "trusted paused"),
        ("block_selected", "trusted paused blocked"),
        ("resume_selected", "trusted blocked"),
        ("unblock_selected", "trusted"),
        ("distrust_selected", None),
    ):
        act(admin_client, action)
        assert fields(site_redis).get(f"relay:{PARTNER}") == flags
    assert "1 relays distrusted" in page(admin_client, RELAYS)


def test_reset(admin_client: Client, site_redis: RedisServer) -> None:
    add_partner(site_redis, retry_at=time.time() + 50, failures=4)
    site_redis.run("ZADD", keys.failures(PARTNER), time.time(), "x")
    assert "s more" in page(admin_client, RELAYS)
    act(admin_client, "reset_selected")
    assert "s more" not in page(admin_client, RELAYS)
    assert site_redis.run("EXISTS", keys.failures(PARTNER)) == 0


def test_a_relay_entered_by_hand(admin_client: Client, site_redis: RedisServer) -> None:
    form = {"domain": "a.example:8080", "blocked": "on", "note": "spammer"}
    assert admin_client.post(f"{RELAYS}add/", form).status_code == 302
    assert fields(site_redis)["relay:a.example:8080"] == "blocked"
    row = f"{RELAYS}a.example:8080/"
    assert "spammer" in page(admin_client, f"{row}change/")
    assert admin_client.post(f"{row}change/", {"note": ""}).status_code == 302
    assert "relay:a.example:8080" not in fields(site_redis)
    assert admin_client.post(f"{row}delete/", {"post": "yes"}).status_code == 302
    assert not RelayNode.objects.exists()
    for domain in ("a_b", "https://a.example"):
        answer = admin_client.post(f"{RELAYS}add/", {"domain": domain})
        assert "must be host or host:port" in answer.content.decode()
    assert admin_client.get(RELAYS, {"q": "example"}).context["cl"].result_count == 0


def test_dead_letters(admin_client: Client, site_redis: RedisServer) -> None:
    entry = add_dead(site_redis, message(uid="the-uid"))
    text = page(admin_client, DEAD)
    for expected in ("the latest 1 of 1", "remote_4xx", "test.cmd", "the-uid", PARTNER, "404",
                     f'value="{entry}"'):  # fmt: skip
        assert expected in text, expected
    assert "secret payload" not in text
    answer = admin_client.post(DEAD, {"requeue": entry})
    assert (answer.status_code, answer["Location"]) == (302, DEAD)
    assert "sent again" in page(admin_client, DEAD)
    assert site_redis.run("XLEN", keys.outbox(4)) == 1
    admin_client.post(DEAD, {"requeue": entry})
    assert "gone already" in page(admin_client, DEAD)
    second = add_dead(site_redis, message())
    for nonsense in ("", "x", "-", "+", "9" * 50):
        admin_client.post(DEAD, {"delete": nonsense, "requeue": nonsense})
    assert site_redis.run("XLEN", keys.DEAD_LETTERS) == 1
    admin_client.post(DEAD, {"delete": second})
    assert site_redis.run("XLEN", keys.DEAD_LETTERS) == 0
    assert admin_client.get(f"{DEAD}{second}/change/").status_code == 404


def test_the_outbox(admin_client: Client, site_redis: RedisServer) -> None:
    entry = add_pending(site_redis, message(uid="<script>alert(1)</script>"))
    tried = '{"at": 1795218450, "relay": "<b>", "answer": "503", "ms": 40}'
    site_redis.run("RPUSH", keys.tries(4, entry), tried)
    text = page(admin_client, PENDING)
    for expected in ("the oldest 1 messages", "&lt;script&gt;", "&lt;b&gt;: 503, 40 ms", PARTNER):
        assert expected in text, expected
    for dangerous in ("<script>alert", "<b>:", "secret payload"):
        assert dangerous not in text


@pytest.mark.usefixtures("no_redis")
def test_without_redis_the_pages_say_so(admin_client: Client) -> None:
    RelayNode.objects.create(domain=PARTNER)
    for path in (RELAYS, DEAD, PENDING):
        assert "Redis does not answer" in page(admin_client, path)
    act(admin_client, "reset_selected")
    assert "Redis does not answer" in page(admin_client, "/admin/")
    admin_client.post(DEAD, {"requeue": "1-1"})
    assert "Redis does not answer" in page(admin_client, "/admin/")


def test_looking_is_not_acting(viewer: Client, site_redis: RedisServer) -> None:
    add_partner(site_redis)
    entry = add_dead(site_redis, message())
    assert PARTNER in page(viewer, RELAYS)
    for name in ("requeue", "delete"):
        assert f'name="{name}"' not in page(viewer, DEAD)
        assert viewer.post(DEAD, {name: entry}).status_code == 403
    viewer.post(RELAYS, {"action": "block_selected", "_selected_action": PARTNER})
    assert fields(site_redis) == {}
    assert site_redis.run("XLEN", keys.DEAD_LETTERS) == 1


def test_strangers_see_nothing(client: Client, site_redis: RedisServer) -> None:
    for path in (RELAYS, DEAD, PENDING):
        assert client.get(path)["Location"].startswith("/admin/login/")
    client.force_login(User.objects.create_user("nobody", is_staff=True))
    for path in (RELAYS, DEAD, PENDING):
        assert client.get(path).status_code == 403
