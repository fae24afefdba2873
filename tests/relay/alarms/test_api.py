"""Alarms over REST and on the command line."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from relay.alarms import api, rounds
from relay.alarms.models import Alarm, Evaluation, Kind, Receiver, RuleOverride, Silence, State
from relay.alarms.rules import RULES
from tests.relay.alarms.conftest import Evaluate, states
from tests.relay.rest.conftest import account, bearer, token_of
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

BASE = "/api/v1/alarms"


@pytest.fixture
def owner(site_redis: RedisServer, db: None) -> Client:
    return bearer(token_of(account("owner", "owner")))


@pytest.fixture
def viewer(site_redis: RedisServer, db: None) -> Client:
    return bearer(token_of(account("viewer", "viewer"), role="viewer"))


def send(client: Client, method: str, path: str, body: Any = None, **headers: str) -> Any:
    data = json.dumps({} if body is None else body)
    return client.generic(
        method, f"{BASE}{path}", data, content_type="application/json", headers=headers
    )


def test_the_life_of_an_alarm_over_rest(
    owner: Client, evaluate: Evaluate, site_redis: RedisServer
) -> None:
    evaluate(5)
    page = owner.get(f"{BASE}?state=firing&rule=background_down").json()
    assert [each["subject"] for each in page["items"]]
    alarm = page["items"][0]
    assert alarm["severity"] == "critical" and alarm["runbook"].startswith("No Celery worker")
    answer = send(owner, "POST", f"/{alarm['id']}/acknowledge", {"note": "on it"})
    assert answer.status_code == 200 and answer.json()["state"] == "acknowledged"
    assert send(owner, "POST", f"/{alarm['id']}/unacknowledge").json()["state"] == "firing"
    assert send(owner, "POST", f"/{alarm['id']}/unacknowledge").status_code == 409
    assert owner.get(f"{BASE}/999999").status_code == 404
    until = (timezone.now() + timedelta(hours=1)).isoformat()
    made = send(owner, "POST", "/silences", {"rule": "background_down", "until": until})
    assert made.status_code == 201
    assert set(states("background_down").values()) == {"silenced"}
    assert owner.get(f"{BASE}/silences").json()["items"][0]["id"] == made.json()["id"]
    assert send(owner, "DELETE", f"/silences/{made.json()['id']}").status_code == 204
    kinds = [each["kind"] for each in owner.get(f"{BASE}/history?limit=500").json()["items"]]
    assert kinds.count("fired") == 3 and kinds.count("silenced") == 3
    assert kinds[-1] == "fired" and "acknowledged" in kinds


def test_rules_over_rest(owner: Client) -> None:
    rules = owner.get(f"{BASE}/rules").json()
    assert [each["key"] for each in rules] == [rule.key for rule in RULES]
    before = owner.get(f"{BASE}/rules/disk")
    tag = before["ETag"]
    changed = send(owner, "PUT", "/rules/disk", {"threshold": 70}, **{"If-Match": tag})
    assert changed.status_code == 200 and changed.json()["threshold"] == 70
    stale = send(owner, "PUT", "/rules/disk", {"threshold": 60}, **{"If-Match": tag})
    assert stale.status_code == 412
    wrong = send(owner, "PUT", "/rules/disk", {"clear": 95})
    assert wrong.status_code == 422 and wrong.json()["errors"][0]["field"] == "clear"
    assert send(owner, "PUT", "/rules/disk", {}).json()["changed"] is False
    assert not RuleOverride.objects.exists()
    assert send(owner, "PUT", "/rules/none", {}).status_code == 404


def test_what_changes_by_itself_is_no_other_state(owner: Client) -> None:
    body = {"name": "pager", "kind": "webhook", "target": "https://hooks.example/secret/path"}
    number = send(owner, "POST", "/receivers", body).json()["id"]
    path = f"/receivers/{number}"
    before = owner.get(f"{BASE}{path}")
    now = timezone.now()
    Receiver.objects.filter(pk=number).update(last_error="boom", failures=2, last_success=now)
    after = owner.get(f"{BASE}{path}", headers={"If-None-Match": before["ETag"]})
    assert (after.status_code, after.json()["last_error"]) == (200, "boom"), "no 304: it has news"
    assert after["ETag"] == before["ETag"]
    patch = {"enabled": False}
    changed = send(owner, "PATCH", path, patch, **{"If-Match": before["ETag"]})
    assert changed.status_code == 200
    assert send(owner, "DELETE", path, **{"If-Match": before["ETag"]}).status_code == 412

    tag = owner.get(f"{BASE}{path}")["ETag"]
    for unseen in ({"secret": "TEST SECRET, ANOTHER"}, {"target": "https://hooks.example/other"}):
        assert send(owner, "PATCH", path, unseen, **{"If-Match": tag}).status_code == 200
        assert send(owner, "PATCH", path, unseen, **{"If-Match": tag}).status_code == 412
        tag = owner.get(f"{BASE}{path}")["ETag"]

    tag = owner.get(f"{BASE}/rules/disk")["ETag"]
    gone = {"since": 5.0, "error": "no such disk", "rules": ["disk"], "redis_away": False}
    Evaluation.objects.update_or_create(pk=Evaluation.ONLY, defaults={"unknown": {"disk": gone}})
    unknown = owner.get(f"{BASE}/rules/disk")
    assert (unknown.json()["error"], unknown["ETag"]) == ("no such disk", tag)
    threshold = {"threshold": 60}
    for status in (200, 412):
        answer = send(owner, "PUT", "/rules/disk", threshold, **{"If-Match": tag})
        assert answer.status_code == status


def test_receivers_over_rest(owner: Client, viewer: Client) -> None:
    body = {"name": "pager", "kind": "webhook", "target": "https://hooks.example/secret/path"}
    made = send(owner, "POST", "/receivers", body)
    assert made.status_code == 201 and len(made.json()["secret"]) > 30
    number = made.json()["id"]
    for client in (owner, viewer):
        text = client.get(f"{BASE}/receivers").content.decode()
        assert "hooks.example" in text and "secret/path" not in text
        assert made.json()["secret"] not in text
    changed = send(owner, "PATCH", f"/receivers/{number}", {"min_severity": "critical"})
    assert changed.json()["min_severity"] == "critical"
    again = send(owner, "POST", "/receivers", body)
    assert again.status_code == 422
    assert send(viewer, "DELETE", f"/receivers/{number}").status_code == 403
    assert send(viewer, "POST", f"/receivers/{number}/test").status_code == 403
    assert send(owner, "DELETE", f"/receivers/{number}").status_code == 204


def test_a_test_says_what_came_of_it(owner: Client) -> None:
    # Loopback is not allowed unless the operator allows it.
    Receiver.objects.create(
        name="here", kind="webhook", target="https://127.0.0.1:1/", secret="TEST SECRET OF 16"
    )
    number = Receiver.objects.get().pk
    answer = send(owner, "POST", f"/receivers/{number}/test").json()
    assert answer["ok"] is False and "not a public address" in answer["text"]


@pytest.mark.django_db(transaction=True)
async def test_events_come_as_they_happen() -> None:
    feed = api._feed("")
    following = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0)

    def happen() -> None:
        alarm = Alarm(rule="disk", subject="/data", severity="critical", state=State.FIRING)
        rounds.note(alarm, Kind.FIRED, "", timezone.now().timestamp())

    from asgiref.sync import sync_to_async

    newest = await sync_to_async(api._newest)()
    assert newest == 0
    await sync_to_async(happen)()
    found = await asyncio.wait_for(following, 10)
    assert (found.kind, found.data["rule"]) == ("fired", "disk")
    assert found.encode().startswith(f"id: {found.id}\nevent: fired\n".encode())
    await feed.aclose()
    again = await asyncio.wait_for(anext(api._feed("0")), 10)
    assert again.id == found.id


def command(*arguments: str) -> str:
    out = StringIO()
    call_command("rmb_alarms", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_the_command(evaluate: Evaluate, site_redis: RedisServer) -> None:
    assert json.loads(command("list", "--json")) == []
    evaluate(5)
    listed = json.loads(command("list", "--json"))
    assert {each["subject"] for each in listed} == {"federation", "chain", "default"}
    number = str(listed[0]["id"])
    assert "firing" in command("list")
    with pytest.raises(CommandError, match="firing: 3 alarms"):
        command("list", "--check")
    assert "1. With `celery.embedded`" in command("show", number)
    assert "is acknowledged" in command("ack", number, "--note", "on it")
    assert json.loads(command("show", number, "--json"))["note"] == "on it"
    assert "not acknowledged any more" in command("unack", number)
    assert "silence" in command("silence", "background_down", "--for", "2h")
    silence = Silence.objects.get()
    assert 7100 < (silence.until - timezone.now()).total_seconds() < 7201
    assert f"{silence.pk}  until" in command("silences")
    assert set(states("background_down").values()) == {"silenced"}
    command("unsilence", str(silence.pk))
    assert "background_down" in command("rules")
    assert json.loads(command("set", "disk", "--threshold", "70", "--json"))["threshold"] == 70
    assert json.loads(command("set", "disk", "--hold", "5", "--json"))["threshold"] == 70
    assert "OFF" in [command("set", "disk", "--off"), command("rules")][1]
    off = json.loads(command("set", "disk", "--threshold", "71", "--json"))
    assert (off["threshold"], off["enabled"]) == (71, False), "nobody switched it on again"
    on = json.loads(command("set", "disk", "--on", "--json"))
    assert (on["threshold"], on["hold_s"], on["enabled"]) == (71, 5, True)
    assert json.loads(command("set", "disk", "--default", "--json"))["changed"] is False
    added = json.loads(command("receiver-add", "pager", "https://hooks.example/x", "--json"))
    assert added["secret"] and "hooks.example" in command("receivers")
    assert "accepted the test" not in command("notices")
    assert len(command("history").splitlines()) == 11
    command("receiver-remove", "pager")
    for wrong in (
        ("show", "x"),
        ("silence", "disk", "--for", "soon"),
        ("set", "disk"),
        ("set", "disk", "--default", "--threshold", "50"),
    ):
        with pytest.raises(CommandError) as refused:
            command(*wrong)
        assert refused.value.returncode == 2
    for refused_by_service in (("show", "99999"), ("set", "none"), ("test", "none")):
        with pytest.raises(CommandError, match="there is no"):
            command(*refused_by_service)
