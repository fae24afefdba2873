"""The operator site: every page with data, and what its buttons do."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from proto.identity import ss58
from relay.access.actor import SYSTEM
from relay.limits import services as limits
from relay.limits.models import TwinLimit
from relay.queues import keys
from relay.twins import services as twins
from relay.twins.fields import TwinValues
from relay.twins.models import Twin
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

ACCOUNT = bytes(range(32))
PK = b"\2" + ACCOUNT
TWINS = "/admin/relay_twins/twin/"
LIMITS = "/admin/relay_limits/twinlimit/"


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, f"{path}: {answer.status_code}"
    return answer.content.decode()


def test_signing_in(client: Client, site_redis: RedisServer) -> None:
    User.objects.create_superuser("boss", password="secret-of-boss")
    assert "RMB relay" in page(client, "/admin/login/")
    answer = client.post("/admin/login/", {"username": "boss", "password": "secret-of-boss"})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert client.get("/")["Location"] == "/console/"


@pytest.mark.parametrize(
    "path",
    ["/admin/", TWINS, f"{TWINS}add/", LIMITS, f"{LIMITS}add/",
     "/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/"],
)  # fmt: skip
def test_empty_pages(admin_client: Client, site_redis: RedisServer, path: str) -> None:
    text = page(admin_client, path)
    assert "RMB relay" in text
    assert "Limits and bans" in text, "the menu"


def test_twins(admin_client: Client, site_redis: RedisServer) -> None:
    form = {"id": "7", "account_text": ss58.encode(ACCOUNT), "pk_text": f"0x{PK.hex()}"}
    answer = admin_client.post(f"{TWINS}add/", {**form, "relays": "a_b"})
    assert answer.status_code == 302, answer.content
    assert Twin.objects.get(pk=7).record()[:4] == (7, ACCOUNT, PK, ("a", "b"))
    assert ss58.encode(ACCOUNT) in page(admin_client, TWINS)
    for term, hits in (("7", 1), (f"0x{ACCOUNT.hex()}", 1), (ss58.encode(ACCOUNT), 1), ("A", 1),
                       ("8", 0), ("zzz", 0)):  # fmt: skip
        found = admin_client.get(TWINS, {"q": term})
        assert found.context["cl"].result_count == hits, term
    assert f"0x{PK.hex()}" in page(admin_client, f"{TWINS}7/change/")
    changed = {"account_text": f"0x{ACCOUNT.hex()}", "pk_text": "", "relays": ""}
    assert admin_client.post(f"{TWINS}7/change/", changed).status_code == 302
    assert Twin.objects.get(pk=7).record() == (7, ACCOUNT, None, (), 2)
    assert admin_client.post(f"{TWINS}7/delete/", {"post": "yes"}).status_code == 302
    assert not Twin.objects.exists()


def test_the_form_offers_this_relay(
    admin_client: Client, site_redis: RedisServer, settings: Any
) -> None:
    own = dataclasses.replace(settings.RMB.relay, domains=("here.example",))
    settings.RMB = dataclasses.replace(settings.RMB, relay=own)
    assert 'value="here.example"' in page(admin_client, f"{TWINS}add/")
    form = {"id": "7", "account_text": ss58.encode(ACCOUNT), "pk_text": "", "relays": ""}
    answer = admin_client.post(f"{TWINS}add/", form, follow=True)
    assert "Twin 7: it lists no relay, so no message reaches it." in answer.content.decode()
    assert 'value="here.example"' not in page(admin_client, f"{TWINS}7/change/")


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("id", "0", "greater than or equal to 1"),
        ("account_text", "x", "account: "),
        ("pk_text", "0x00", "pk: must be 0x"),
        ("relays", "_".join("x" * 20), "relays: must be at most 16"),
        ("relays", "wss://a", "did you mean a?"),
    ],
)
def test_bad_twins(
    admin_client: Client, site_redis: RedisServer, field: str, value: str, complaint: str
) -> None:
    form = {"id": "7", "account_text": ss58.encode(ACCOUNT), "pk_text": "", "relays": ""}
    answer = admin_client.post(f"{TWINS}add/", {**form, field: value})
    assert answer.status_code == 200
    assert complaint in answer.content.decode()
    assert not Twin.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_twin_changed_in_the_admin_is_announced(
    admin_client: Client, site_redis: RedisServer
) -> None:
    twins.put_twin(TwinValues(7, ACCOUNT, None, ("here",)), actor=SYSTEM)
    selected = {"action": "delete_selected", "_selected_action": "7", "post": "yes"}
    assert admin_client.post(TWINS, selected).status_code == 302
    assert not Twin.objects.exists()
    assert site_redis.run("GET", keys.TWINS_VERSION) == b"2"


@pytest.mark.django_db(transaction=True)
def test_limits_and_bans(admin_client: Client, site_redis: RedisServer) -> None:
    form = {"twin": "7", "count": "10", "size": "1000", "note": "loud"}
    answer = admin_client.post(f"{LIMITS}add/", form)
    assert answer.status_code == 200 and "never met twin 7" in answer.content.decode()
    form["unknown"] = "on"
    assert admin_client.post(f"{LIMITS}add/", form).status_code == 302
    assert fields(site_redis)["limit:7"] == "10 1000"
    text = page(admin_client, LIMITS)
    assert "10 messages, 1000 bytes" in text
    changed = {"count": "", "size": "", "banned": "on", "ban_reason": "spam", "note": ""}
    assert admin_client.post(f"{LIMITS}7/change/", changed).status_code == 302
    assert {"ban:7": "spam"}.items() <= fields(site_redis).items()
    assert "limit:7" not in fields(site_redis)
    for action, banned in (("lift_selected", False), ("ban_selected", True)):
        answer = admin_client.post(LIMITS, {"action": action, "_selected_action": "7"})
        assert answer.status_code == 302
        assert TwinLimit.objects.get(twin=7).banned is banned
        assert ("ban:7" in fields(site_redis)) is banned
    assert admin_client.post(f"{LIMITS}7/delete/", {"post": "yes"}).status_code == 302
    assert "ban:7" not in fields(site_redis)


def test_half_a_limit_is_refused(admin_client: Client, site_redis: RedisServer) -> None:
    answer = admin_client.post(f"{LIMITS}add/", {"twin": "7", "count": "10"})
    assert answer.status_code == 200
    assert "Set both messages and bytes" in answer.content.decode()


def test_strangers_see_nothing(client: Client, site_redis: RedisServer) -> None:
    for path in ("/admin/", TWINS, LIMITS):
        answer = client.get(path)
        assert answer.status_code == 302
        assert answer["Location"].startswith("/admin/login/")
    nobody = User.objects.create_user("nobody", is_staff=True)
    client.force_login(nobody)
    for path in (TWINS, LIMITS):
        assert client.get(path).status_code == 403
    assert "Limits and bans" not in page(client, "/admin/")


def test_a_ban_shows_when_it_is_over(admin_client: Client, site_redis: RedisServer) -> None:
    limits.ban(7, "spam", actor=SYSTEM)
    over = timezone.now() - timedelta(seconds=1)
    TwinLimit.objects.filter(twin=7).update(banned_until=over)
    assert "over" in page(admin_client, LIMITS)
