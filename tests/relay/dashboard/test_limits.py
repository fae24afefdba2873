"""The page of limits and bans, and the decisions made on it."""

from __future__ import annotations

import dataclasses
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from relay.access.actor import SYSTEM
from relay.limits import defaults, services
from relay.limits.models import SbdLimit, TwinLimit
from relay.queues import keys
from tests.relay.dashboard.conftest import SignIn
from tests.relay.limits.test_sbd import KEY
from tests.relay.ops.test_control import fields
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/console/limits/"


def shown(client: Client, path: str = PAGE, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status, (path, answer.status_code)
    return answer.content.decode()


def listed(client: Client, **query: str) -> list[int]:
    answer = client.get(PAGE, {**query, "export": "json"})
    return [each["twin"] for each in json.loads(answer.getvalue())]


@pytest.fixture
def decided(site_redis: RedisServer) -> RedisServer:
    services.set_limit(7, 10, 2048, actor=SYSTEM)
    services.ban(8, "noise", actor=SYSTEM)
    services.ban(9, "old", actor=SYSTEM)
    over = timezone.now() - timedelta(hours=1)
    TwinLimit.objects.filter(twin=9).update(banned_until=over)
    return site_redis


def test_what_is_decided(decided: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("viewer")
    text = shown(client)
    for expected in ("noise", "banned", "over", "2 KiB", "system", "the settings"):
        assert expected in text
    assert "data-ask" not in text, "who looks does not act"
    for query, expected in (
        ({"order": "twin"}, [7, 8, 9]),
        ({"ban": "yes"}, [8]),
        ({"ban": "no", "order": "twin"}, [7, 9]),
        ({"limit": "yes"}, [7]),
        ({"text": "NOI"}, [8]),
        ({"text": "9"}, [9]),
    ):
        assert listed(client, **query) == expected, query


def test_who_is_refused_most(decided: RedisServer, sign_in: SignIn) -> None:
    minute = int(time.time()) // 60
    decided.run("ZADD", keys.hits("twin", minute), 5, "7", 42, "8")
    decided.run("ZADD", keys.hits("address", minute), 9, "192.0.2.7")
    text = shown(sign_in("operator"))
    assert text.index(">42</data>") < text.index(">5</data>")
    assert "own limit" in text and "/console/sessions/?address=192.0.2.7" in text


def test_a_ban_and_its_end(site_redis: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    assert "Ban twin 7" in shown(client, f"{PAGE}ban/?twin=7")
    form = {"twin": "7", "reason": "noise", "lasts": "24", "unknown": "on"}
    assert client.post(f"{PAGE}ban/?twin=7", form).headers["Location"] == PAGE
    limit = TwinLimit.objects.get(twin=7)
    assert limit.banned_until
    assert timedelta(hours=23) < limit.banned_until - timezone.now() <= timedelta(hours=24)
    assert fields(site_redis)["ban:7"] == "noise"
    text = shown(client)
    assert "Twin 7 is banned" in text and "a operator" in text
    assert "It was banned for: noise" in shown(client, f"{PAGE}7/lift/")
    client.post(f"{PAGE}7/lift/")
    assert "ban:7" not in fields(site_redis)


@pytest.mark.parametrize(
    ("form", "complaint"),
    [
        ({"twin": "0"}, "greater than or equal to 1"),
        (
            {"twin": "7"},
            "does not know twin 7: check the id, or allow unknown ones (tick",
        ),
        ({"twin": "7", "lasts": "until"}, "Enter a time"),
        ({"twin": "7", "lasts": "until", "until": "2020-01-01T00:00"}, "This time has passed"),
        ({"twin": "7", "lasts": "1", "until": "2120-01-01T00:00"}, "Choose the last option"),
        ({"twin": "7", "reason": "x" * 121}, "at most 120"),
    ],
)
def test_bad_bans(
    site_redis: RedisServer, sign_in: SignIn, form: dict[str, str], complaint: str
) -> None:
    answer = sign_in("operator").post(f"{PAGE}ban/", form)
    assert answer.status_code == 200 and complaint in answer.content.decode()
    assert not TwinLimit.objects.exists()


def test_a_ban_until_a_named_time(site_redis: RedisServer, sign_in: SignIn) -> None:
    form = {"twin": "7", "lasts": "until", "until": "2120-01-02T03:04", "unknown": "on"}
    assert sign_in("operator").post(f"{PAGE}ban/", form).status_code == 302
    until = TwinLimit.objects.get(twin=7).banned_until
    assert until and until.isoformat() == "2120-01-02T03:04:00+00:00"


def test_a_limit_of_its_own(site_redis: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    half = {"twin": "7", "count": "5", "size": "", "unknown": "on"}
    answer = client.post(f"{PAGE}set/?twin=7", half)
    assert "Set both messages and bytes" in answer.content.decode()
    form = {"twin": "7", "count": "5", "size": "1000"}
    client.post(f"{PAGE}set/?twin=7", {**form, "unknown": "on"})
    assert fields(site_redis)["limit:7"] == "5 1000"
    assert 'value="1000"' in shown(client, f"{PAGE}set/?twin=7"), "what it has now"
    client.post(f"{PAGE}set/?twin=7", {"twin": "7", "count": "", "size": ""})
    assert "limit:7" not in fields(site_redis)


def test_everything_is_forgotten(decided: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    services.save(TwinLimit(twin=8, banned=True, ban_reason="noise", note="a note"), actor=SYSTEM)
    text = shown(client, f"{PAGE}8/forget/")
    assert "its ban for noise" in text and "the note: a note" in text
    client.post(f"{PAGE}8/forget/")
    assert not TwinLimit.objects.filter(twin=8).exists() and "ban:8" not in fields(decided)
    assert "nothing is decided about twin 8" in shown(client, f"{PAGE}8/forget/", 404)


def test_the_limit_of_all(site_redis: RedisServer, sign_in: SignIn) -> None:
    client = sign_in("operator")
    answer = client.post(f"{PAGE}default/", {"count": "5", "size": "0"})
    assert "set both, or both to 0" in answer.content.decode()
    client.post(f"{PAGE}default/", {"count": "600", "size": "1048576"})
    found = defaults.get()
    assert (found.count, found.size, found.source) == (600, 1048576, "operator")
    assert "1 MiB" in shown(client) and "an operator" in shown(client)
    assert "600 and 1,048,576 bytes" in shown(client, f"{PAGE}default/clear/")
    client.post(f"{PAGE}default/clear/")
    assert defaults.get().source == "settings"


def test_who_looks_does_not_act(decided: RedisServer, sign_in: SignIn) -> None:
    client, before = sign_in("viewer"), fields(decided)
    for path in ("ban/", "set/", "default/", "default/clear/", "8/lift/", "8/forget/"):
        assert client.post(f"{PAGE}{path}", {"twin": "7"}).status_code == 403, path
    assert fields(decided) == before


@pytest.mark.usefixtures("no_redis")
def test_without_redis(sign_in: SignIn) -> None:
    TwinLimit.objects.create(twin=7, banned=True, ban_reason="noise")
    text = shown(sign_in("operator"), status=503)
    assert "noise" in text and "Redis does not answer" in text


def test_what_may_wait_and_a_note(sign_in: SignIn, site_redis: RedisServer) -> None:
    operator, path = sign_in("operator"), f"{PAGE}set/?twin=7"
    services.ban(7, "noise", actor=SYSTEM)
    form = {"twin": "7", "waiting_messages": "5", "note": "loud"}
    assert operator.post(path, form).status_code == 302
    limit = TwinLimit.objects.get()
    assert limit.waiting == (5, None, None) and limit.note == "loud"
    assert limit.banned and limit.ban_reason == "noise", "what is not asked stays"
    assert fields(site_redis)["waiting:7"] == "5 0 0"
    text = shown(operator, path)
    assert 'value="5"' in text and "loud" in text
    assert "Set both messages" in operator.post(path, {**form, "count": "1"}).content.decode()


def test_an_address_is_banned_where_it_is_refused(site_redis: RedisServer, sign_in: SignIn) -> None:
    minute = int(time.time()) // 60
    site_redis.run("ZADD", keys.hits("handshake", minute), 9, "192.0.2.7", 8, "2001:db8:1:2::3")
    client, path = sign_in("operator"), f"{PAGE}addresses/ban/"
    text = shown(client)
    for network in ("192.0.2.7", "2001%3Adb8%3A1%3A2%3A%3A%2F64"):
        assert f"{path}?network={network}" in text
    assert "Ban 192.0.2.7" in shown(client, f"{path}?network=192.0.2.7")
    wrong = client.post(path, {"network": "192.0.2.7/24"}).content.decode()
    assert "write 192.0.2.0/24 or 192.0.2.7" in wrong
    assert "use force" in client.post(path, {"network": "127.0.0.1"}).content.decode()
    form = {"network": "192.0.2.0/24", "reason": "noise", "lasts": "24"}
    assert client.post(path, form).headers["Location"] == PAGE
    assert fields(site_redis)["ban_address:192.0.2.0/24"] == "noise"
    text = shown(client)
    assert "192.0.2.0/24 is banned" in text and "a operator" in text
    assert f"{path}?network=192.0.2.7" not in text, "it is banned already"
    answer = client.get(PAGE, {"b-export": "json"})
    (row,) = json.loads(answer.getvalue())
    assert (row["network"], row["reason"]) == ("192.0.2.0/24", "noise")
    lift = f"{PAGE}addresses/lift/?network=192.0.2.0%2F24"
    assert lift.replace("&", "&amp;") in text
    assert "It was banned for: noise" in shown(client, lift)
    client.post(lift)
    assert "ban_address:192.0.2.0/24" not in fields(site_redis)
    assert "192.0.2.0/24 is not banned" in shown(client, lift, 404)


def test_keys_and_networks_of_sbd(site_redis: RedisServer, sign_in: SignIn, settings: Any) -> None:
    client, path = sign_in("operator"), f"{PAGE}sbd/"
    assert "Ban a key" not in shown(client), "SBD is off"
    section = dataclasses.replace(settings.RMB.sbd, enabled=True)
    settings.RMB = dataclasses.replace(settings.RMB, sbd=section)
    text = shown(client)
    assert "Ban a key" in text and "No key is banned" in text
    wrong = client.post(f"{path}ban/", {"key": "nonsense"}).content.decode()
    assert "is not a key: expected 43 characters" in wrong
    form = {"key": KEY, "reason": "flood", "lasts": "24"}
    assert client.post(f"{path}ban/", form).headers["Location"] == PAGE
    assert fields(site_redis)[f"ban_key:{KEY}"] == "flood"
    limit = {"subject": "192.0.2.0/24", "kbit_per_s": "800"}
    assert client.post(f"{path}set/", limit).headers["Location"] == PAGE
    assert fields(site_redis)["limit_address:192.0.2.0/24"] == "800"
    text = shown(client)
    assert 'value="800"' in shown(client, f"{path}set/?subject=192.0.2.0%2F24")
    assert f"Key {KEY} is banned" in text and "a operator" in text
    rows = json.loads(client.get(PAGE, {"s-export": "json", "s-order": "subject"}).getvalue())
    assert [(each["subject"], each["kbit_per_s"]) for each in rows] == [
        ("192.0.2.0/24", 800), (KEY, None),
    ]  # fmt: skip
    lift = f"{path}lift/?subject={KEY}"
    assert "It was banned for: flood" in shown(client, lift)
    client.post(lift)
    client.post(f"{path}set/", {"subject": "192.0.2.0/24", "kbit_per_s": ""})
    assert not SbdLimit.objects.exists()
    assert f"key {KEY} is not banned" in shown(client, lift, 404)
    viewer = sign_in("viewer")
    assert "sbd/ban/" not in shown(viewer)
    for action in ("ban/", "lift/", "set/"):
        assert viewer.post(f"{path}{action}", form).status_code == 403


def test_who_looks_bans_no_address(site_redis: RedisServer, sign_in: SignIn) -> None:
    site_redis.run("ZADD", keys.hits("handshake", int(time.time()) // 60), 9, "192.0.2.7")
    client = sign_in("viewer")
    assert "addresses/ban/" not in shown(client)
    for path in ("addresses/ban/", "addresses/lift/"):
        assert client.post(f"{PAGE}{path}", {"network": "192.0.2.7"}).status_code == 403
