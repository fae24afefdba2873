"""Accounts and groups over REST: made, changed and deleted; no stored data contains a password."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import Group, User
from django.test import Client

from relay.audit.models import AuditEntry
from tests.relay.rest.conftest import account, bearer, token_of
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

PASSWORD = "a password for tests"


def send(client: Client, method: str, path: str, body: Any = None, **headers: str) -> Any:
    form = {} if body is None else {"content_type": "application/json", "data": json.dumps(body)}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.generic(method, f"/api/v1{path}", **form, headers=names)


def test_an_account_from_its_making_to_its_end(
    owner: Client, site_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = {"username": "vera", "password": PASSWORD, "groups": ["viewer"], "email": "v@x.example"}
    answers = [send(owner, "POST", "/accounts", body, idempotency_key="a") for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 201]
    made = answers[0].json()
    assert answers[1].json() == made, "by its key, and made once"
    assert (made["username"], made["groups"], made["second_factor"]) == ("vera", ["viewer"], False)
    path = f"/accounts/{made['id']}"
    assert authenticate(username="vera", password=PASSWORD) is not None

    tag = owner.get(f"/api/v1{path}")["ETag"]
    change = {"groups": ["operator"], "is_active": True, "permissions": ["auth.view_group"]}
    changed = send(owner, "PATCH", path, change, if_match=tag)
    assert changed.status_code == 200 and changed.json()["groups"] == ["operator"]
    assert changed.json()["permissions"] == ["auth.view_group"]
    assert send(owner, "PATCH", path, change, if_match=tag).status_code == 412
    again = {"password": "another password"}
    set_again = send(owner, "POST", f"{path}/password", again, idempotency_key="b")
    assert set_again.status_code == 200
    assert authenticate(username="vera", password="another password") is not None
    assert send(owner, "POST", f"{path}/reset-second-factor").status_code == 200
    assert send(owner, "POST", f"{path}/password", {"password": None}).status_code == 200
    assert not User.objects.get(username="vera").has_usable_password()
    listed = owner.get("/api/v1/accounts?group=operator").json()["items"]
    assert [each["username"] for each in listed] == ["vera"]

    assert send(owner, "DELETE", path, if_match=tag).status_code == 412
    assert send(owner, "DELETE", path).status_code == 204
    assert owner.get(f"/api/v1{path}").status_code == 404
    found = AuditEntry.objects.filter(action__startswith="account.").order_by("number")
    assert [(each.action, each.face) for each in found] == [
        ("account.add", "rest"), ("account.change", "rest"), ("account.change", "rest"),
        ("account.change", "rest"), ("account.delete", "rest"),
    ]  # fmt: skip
    kept = [site_redis.run("GET", key) for key in site_redis.run("KEYS", "relay:rest:key:*")]
    assert len(kept) == 2
    everything = [
        *kept, caplog.text, *(each.content for each in (*answers, changed, set_again)),
        *found.values_list("before_json", "after_json", "target"),
    ]  # fmt: skip
    assert PASSWORD not in repr(everything) and "another password" not in repr(everything)


def test_no_hash_of_a_password_is_kept(owner: Client, site_redis: RedisServer) -> None:
    """The stored fingerprint of a request does not let an attacker verify guessed passwords."""
    body = {"username": "vera", "password": PASSWORD}
    send(owner, "POST", "/accounts", body, idempotency_key="a")
    (key,) = site_redis.run("KEYS", "relay:rest:key:*")
    guess = hashlib.sha256(json.dumps(["", json.dumps(body)]).encode()).hexdigest()
    assert guess not in site_redis.run("GET", key).decode()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"username": "a b"}, "username"),
        ({"username": "owner"}, "username"),
        ({"username": "vera", "password": "brief"}, "password"),
        ({"username": "vera", "groups": ["night"]}, "groups"),
        ({"username": "vera", "permissions": ["auth.fly"]}, "permissions"),
        ({"username": "vera", "email": "nowhere"}, "email"),
    ],
)
def test_values_that_are_none(owner: Client, body: dict[str, Any], field: str) -> None:
    answer = send(owner, "POST", "/accounts", body)
    assert answer.status_code == 422 and answer.json()["errors"][0]["field"] == field
    assert "brief" not in answer.content.decode()
    assert User.objects.count() == 1


def test_who_may_more_is_out_of_reach(owner: Client, operator: Client) -> None:
    boss = User.objects.create_superuser("boss")
    narrow = bearer(token_of(account("eve", "owner"), role="", permissions=["auth.change_user"]))
    target = User.objects.get(username="owner").pk
    for client, pk in ((owner, boss.pk), (narrow, target), (operator, target)):
        for method, path, body in (
            ("PATCH", "", {"first_name": "x"}), ("POST", "/password", {"password": PASSWORD}),
            ("POST", "/reset-second-factor", None), ("DELETE", "", None),
        ):  # fmt: skip
            answer = send(client, method, f"/accounts/{pk}{path}", body)
            assert answer.status_code == 403, (method, path, answer.content)
    more = {"username": "second", "is_superuser": True}
    assert send(owner, "POST", "/accounts", more).status_code == 403
    assert User.objects.count() == 4 and not AuditEntry.objects.exists()


def test_the_last_owner_stays(owner: Client) -> None:
    path = f"/accounts/{User.objects.get().pk}"
    for method, body in (
        ("DELETE", None),
        ("PATCH", {"is_active": False}),
        ("PATCH", {"groups": []}),
    ):
        answer = send(owner, method, path, body)
        assert answer.status_code == 409 and "last owner" in answer.json()["detail"]


def test_groups(owner: Client) -> None:
    body = {"name": "night", "permissions": ["relay_sessions.kick_session"]}
    made = send(owner, "POST", "/groups", body)
    assert made.status_code == 201 and made.json()["role"] is False
    path = f"/groups/{made.json()['id']}"
    tag = owner.get(f"/api/v1{path}")["ETag"]
    changed = send(owner, "PATCH", path, {"permissions": []}, if_match=tag)
    assert (changed.status_code, changed.json()["permissions"]) == (200, [])
    assert send(owner, "PATCH", path, {"name": "day"}, if_match=tag).status_code == 412
    for wrong in ({"name": "owner"}, {"permissions": ["auth.fly"]}, {"unknown": 1}):
        assert send(owner, "PATCH", path, wrong).status_code == 422
    assert send(owner, "DELETE", path).status_code == 204
    role = f"/groups/{Group.objects.get(name='viewer').pk}"
    assert owner.get(f"/api/v1{role}").json()["role"] is True
    for method, change in (("PATCH", {"name": "x"}), ("DELETE", None)):
        assert send(owner, method, role, change).status_code == 409
