"""Alarms in the admin: pages, actions, forms, and who may not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from relay.alarms.models import Alarm, Receiver, RuleOverride, Silence
from relay.audit.models import AuditEntry
from tests.relay.alarms.conftest import Evaluate, states, webhook
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

BASE = "/admin/relay_alarms"
PAGES = ("alarm", "alarmevent", "silence", "ruleoverride", "receiver", "delivery")


def act(client: Client, model: str, action: str, *chosen: int) -> str:
    answer = client.post(
        f"{BASE}/{model}/", {"action": action, "_selected_action": chosen}, follow=True
    )
    assert answer.status_code == 200
    return answer.content.decode()


def test_pages(admin_client: Client, evaluate: Evaluate, site_redis: RedisServer) -> None:
    receiver = webhook("https://hooks.example/secret/path")
    evaluate(6)
    for page in PAGES:
        answer = admin_client.get(f"{BASE}/{page}/")
        assert answer.status_code == 200, page
        assert "secret/path" not in answer.content.decode()
    alarm = Alarm.objects.filter(state="firing").first()
    assert alarm is not None
    shown = admin_client.get(f"{BASE}/alarm/{alarm.pk}/change/").content.decode()
    assert "1. The relay&#x27;s own children" in shown
    listed = admin_client.get(f"{BASE}/ruleoverride/").content.decode()
    assert "partner_down" in listed and "at most 21 days" in listed
    for page in ("ruleoverride/disk", f"receiver/{receiver.pk}"):
        answer = admin_client.get(f"{BASE}/{page}/change/")
        assert answer.status_code == 200 and "TEST SECRET" not in answer.content.decode()
    assert admin_client.get(f"{BASE}/ruleoverride/none/change/").status_code == 302
    assert admin_client.get(f"{BASE}/silence/add/").status_code == 200


def test_actions(admin_client: Client, evaluate: Evaluate, site_redis: RedisServer) -> None:
    evaluate(5)
    chosen = list(Alarm.objects.filter(rule="background_down").values_list("pk", flat=True))
    assert "acknowledged" in act(admin_client, "alarm", "acknowledge", *chosen)
    assert set(states("background_down").values()) == {"acknowledged"}
    act(admin_client, "alarm", "unacknowledge", *chosen)
    assert set(states("background_down").values()) == {"firing"}
    assert "is not acknowledged" in act(admin_client, "alarm", "unacknowledge", *chosen)
    act(admin_client, "alarm", "silence_hour", *chosen)
    assert set(states("background_down").values()) == {"silenced"}
    assert Silence.objects.count() == 3
    entry = AuditEntry.objects.order_by("number").last()
    assert entry is not None and (entry.action, entry.face) == ("silence.add", "admin")


def test_a_silence_by_its_form(admin_client: Client) -> None:
    until = timezone.now() + timedelta(hours=3)
    fields = {
        "rule": "disk*",
        "subject": "*",
        "note": "moving it",
        "until_0": f"{until:%Y-%m-%d}",
        "until_1": f"{until:%H:%M:%S}",
    }
    wrong = admin_client.post(f"{BASE}/silence/add/", {**fields, "rule": "nothing"})
    assert "is no rule" in wrong.content.decode()
    answer = admin_client.post(f"{BASE}/silence/add/", fields)
    assert answer.status_code == 302, answer.context["errors"]
    silence = Silence.objects.get()
    assert (silence.rule, silence.by) == ("disk*", "admin")
    admin_client.post(f"{BASE}/silence/{silence.pk}/delete/", {"post": "yes"})
    assert not Silence.objects.exists()


def test_a_rule_by_its_form(admin_client: Client) -> None:
    address = f"{BASE}/ruleoverride/disk/change/"
    wrong = admin_client.post(address, {"clear": "95", "enabled": "on"})
    assert "must not be above the threshold" in wrong.content.decode()
    assert admin_client.post(address, {"threshold": "70", "enabled": "on"}).status_code == 302
    assert RuleOverride.objects.get().threshold == 70
    assert "changed" in admin_client.get(f"{BASE}/ruleoverride/").content.decode()
    assert admin_client.post(address, {"enabled": "on"}).status_code == 302
    assert not RuleOverride.objects.exists()


def test_a_receiver_by_its_form(admin_client: Client) -> None:
    fields = {
        "name": "pager",
        "kind": "webhook",
        "target": "https://hooks.example/a/b",
        "secret": "",
        "min_severity": "critical",
        "enabled": "on",
    }
    wrong = admin_client.post(f"{BASE}/receiver/add/", {**fields, "target": "ftp://x"})
    assert "must be https" in wrong.content.decode()
    made = admin_client.post(f"{BASE}/receiver/add/", fields, follow=True)
    receiver = Receiver.objects.get()
    assert f"shown only this once: {receiver.secret}" in made.content.decode()
    fields["name"] = "pager two"
    answer = admin_client.post(f"{BASE}/receiver/{receiver.pk}/change/", fields, follow=True)
    assert receiver.secret not in answer.content.decode()
    assert not answer.context.get("errors"), answer.context["errors"]
    assert Receiver.objects.values_list("name", "secret").get() == ("pager two", receiver.secret)
    assert "did not take it" in act(admin_client, "receiver", "send_test", receiver.pk)
    admin_client.post(f"{BASE}/receiver/{receiver.pk}/delete/", {"post": "yes"})
    assert not Receiver.objects.exists()


def test_a_viewer_looks(viewer: Client, evaluate: Evaluate, site_redis: RedisServer) -> None:
    receiver = webhook("https://hooks.example/secret/path")
    evaluate(5)
    for page in PAGES:
        assert viewer.get(f"{BASE}/{page}/").status_code == 200, page
    shown: Any = viewer.get(f"{BASE}/receiver/{receiver.pk}/change/").content.decode()
    assert "hooks.example" in shown and "secret/path" not in shown and "TEST SECRET" not in shown
    chosen = list(Alarm.objects.values_list("pk", flat=True))
    act(viewer, "alarm", "acknowledge", *chosen)
    assert set(states("background_down").values()) == {"firing"}
    assert viewer.post(f"{BASE}/ruleoverride/disk/change/", {"threshold": 1}).status_code == 403
    assert viewer.get(f"{BASE}/silence/add/").status_code == 403
    assert viewer.get(f"{BASE}/receiver/add/").status_code == 403
