"""The operator site: every page with data, and what its buttons do."""

from __future__ import annotations

import time
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from proto.identity import ss58
from relay.access.actor import SYSTEM
from relay.limits import services as limits
from relay.limits.models import TwinLimit
from relay.queues import keys
from relay.sessions.models import Session
from relay.twins import services as twins
from relay.twins.fields import TwinValues
from relay.twins.models import Twin
from tests.relay.conftest import AddWorker
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

ACCOUNT = bytes(range(32))
PK = b"\2" + ACCOUNT
LIVE = "/admin/relay_sessions/session/live/"
HISTORY = "/admin/relay_sessions/session/"
TWINS = "/admin/relay_twins/twin/"
LIMITS = "/admin/relay_limits/twinlimit/"


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, f"{path}: {answer.status_code}"
    return answer.content.decode()


def hold(server: RedisServer, key: str, epoch: int = 5, boot_id: str = "boot") -> None:
    value = f"{epoch} {boot_id} {time.time() - 100:.3f} 192.0.2.7"
    server.run("HSET", keys.SESSIONS, key, value)


def add_row(twin: int = 7, sid: str | None = None, epoch: int = 5) -> Session:
    return Session.objects.create(
        twin=twin,
        sid_present=sid is not None,
        sid=sid or "",
        epoch=epoch,
        worker="boot",
        slot="0",
        opened_at=timezone.now(),
        messages_in=4242,
        user_agent="client/9",
    )


def test_signing_in(client: Client, site_redis: RedisServer) -> None:
    User.objects.create_superuser("boss", password="secret-of-boss")
    assert "RMB relay" in page(client, "/admin/login/")
    answer = client.post("/admin/login/", {"username": "boss", "password": "secret-of-boss"})
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert client.get("/")["Location"] == "/console/"


@pytest.mark.parametrize(
    "path",
    ["/admin/", TWINS, f"{TWINS}add/", LIMITS, f"{LIMITS}add/", HISTORY, LIVE,
     "/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/"],
)  # fmt: skip
def test_empty_pages(admin_client: Client, site_redis: RedisServer, path: str) -> None:
    text = page(admin_client, path)
    assert "RMB relay" in text
    assert "Live sessions" in text, "the menu"


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


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("id", "0", "greater than or equal to 1"),
        ("account_text", "x", "account: "),
        ("pk_text", "0x00", "pk: must be 0x"),
        ("relays", "_".join("x" * 20), "relays: must be at most 16"),
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


def test_live_sessions(
    admin_client: Client, site_redis: RedisServer, add_worker: AddWorker
) -> None:
    add_worker("boot", host="alpha", slot="2")
    hold(site_redis, "7")
    hold(site_redis, "7:phone", epoch=6)
    hold(site_redis, "71", boot_id="gone")
    site_redis.run("HSET", keys.SESSIONS, "junk", "no entry of ours")
    add_row(7, "phone", 6)
    text = page(admin_client, LIVE)
    assert "3 of 4 sessions shown" in text
    for expected in ("192.0.2.7", "alpha/2", "no heartbeat", "client/9", "4242", "phone"):
        assert expected in text
    assert 'value="6 7:phone"' in text
    for search, shown in (("7", 2), ("7:phone", 1), ("71", 1), ("8", 0), ("7:*", 0), ("<b>", 0)):
        found = page(admin_client, f"{LIVE}?q={quote(search)}")
        assert f"{shown} of 4 sessions shown" in found, search
        assert "<b>" not in found


def test_the_live_page_escapes_what_clients_sent(
    admin_client: Client, site_redis: RedisServer
) -> None:
    hold(site_redis, '7:"><script>alert(1)</script>')
    text = page(admin_client, LIVE)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text


def test_kick(admin_client: Client, site_redis: RedisServer) -> None:
    hold(site_redis, "7:my phone", epoch=6)
    answer = admin_client.post(LIVE, {"kick": "6 7:my phone"})
    assert (answer.status_code, answer["Location"]) == (302, LIVE)
    assert fields(site_redis) == {"version": "1", "kick:7:my phone": "6|kicked by admin"}
    assert "1 sessions are told to end" in page(admin_client, LIVE)
    for nonsense in ("", "x", "x 7", "5"):
        admin_client.post(LIVE, {"kick": nonsense})
    assert fields(site_redis)["version"] == "1"


def test_kick_from_the_history(admin_client: Client, site_redis: RedisServer) -> None:
    running, ended = add_row(7), add_row(8)
    hold(site_redis, "7")
    Session.objects.filter(pk=ended.pk).update(closed_at=timezone.now(), close_reason="idle")
    answer = admin_client.post(
        HISTORY, {"action": "kick_selected", "_selected_action": [running.pk, ended.pk]}
    )
    assert answer.status_code == 302
    assert fields(site_redis) == {"version": "1", "kick:7": "5|kicked by admin"}
    text = page(admin_client, HISTORY)
    assert "passed over" in text
    assert "idle" in text


def test_the_history_can_be_searched_and_not_edited(
    admin_client: Client, site_redis: RedisServer
) -> None:
    row = add_row(7, "phone")
    for query, hits in (("q=7", 1), ("q=phone", 1), ("state=open", 1), ("state=ended", 0)):
        found = admin_client.get(f"{HISTORY}?{query}")
        assert found.context["cl"].result_count == hits, query
    assert "client/9" in page(admin_client, f"{HISTORY}{row.pk}/change/")
    assert admin_client.post(f"{HISTORY}{row.pk}/change/", {}).status_code == 403
    assert admin_client.get(f"{HISTORY}add/").status_code == 403


@pytest.mark.usefixtures("no_redis")
def test_without_redis_the_pages_say_so(admin_client: Client) -> None:
    assert "Redis does not answer" in page(admin_client, LIVE)
    admin_client.post(LIVE, {"kick": "6 7"})
    assert "Redis does not answer" in page(admin_client, "/admin/")


def test_looking_is_not_acting(
    viewer: Client, site_redis: RedisServer, add_worker: AddWorker
) -> None:
    add_worker("boot")
    hold(site_redis, "7")
    assert 'name="kick"' not in page(viewer, LIVE)
    assert viewer.post(LIVE, {"kick": "5 7"}).status_code == 403
    row = add_row(7)
    viewer.post(HISTORY, {"action": "kick_selected", "_selected_action": row.pk})
    assert fields(site_redis) == {}


def test_strangers_see_nothing(client: Client, site_redis: RedisServer) -> None:
    for path in ("/admin/", TWINS, LIMITS, HISTORY, LIVE):
        answer = client.get(path)
        assert answer.status_code == 302
        assert answer["Location"].startswith("/admin/login/")
    nobody = User.objects.create_user("nobody", is_staff=True)
    client.force_login(nobody)
    for path in (TWINS, LIMITS, HISTORY, LIVE):
        assert client.get(path).status_code == 403
    assert "Live sessions" not in page(client, "/admin/")


def test_a_ban_shows_when_it_is_over(admin_client: Client, site_redis: RedisServer) -> None:
    limits.ban(7, "spam", timezone.now() - timedelta(seconds=1), actor=SYSTEM)
    assert "over" in page(admin_client, LIMITS)
