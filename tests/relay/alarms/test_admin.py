"""Receivers in the admin: their form, what it never shows, and who may not."""

from __future__ import annotations

import pytest
from django.test import Client

from relay.alarms.models import Receiver
from tests.relay.alarms.conftest import webhook

pytestmark = pytest.mark.django_db

BASE = "/admin/relay_alarms/receiver"


def test_a_receiver_by_its_form(admin_client: Client) -> None:
    fields = {
        "name": "pager",
        "kind": "webhook",
        "target": "https://hooks.example/a/b",
        "secret": "",
        "min_severity": "critical",
        "enabled": "on",
    }
    wrong = admin_client.post(f"{BASE}/add/", {**fields, "target": "ftp://x"})
    assert "must be https" in wrong.content.decode()
    made = admin_client.post(f"{BASE}/add/", fields)
    receiver = Receiver.objects.get()
    assert made.status_code == 200 and f">{receiver.secret}</pre>" in made.content.decode()
    assert "no-store" in made["Cache-Control"]
    assert "messages" not in made.cookies and "_messages" not in admin_client.session
    fields["name"] = "pager two"
    answer = admin_client.post(f"{BASE}/{receiver.pk}/change/", fields, follow=True)
    assert receiver.secret not in answer.content.decode()
    assert not answer.context.get("errors"), answer.context["errors"]
    assert Receiver.objects.values_list("name", "secret").get() == ("pager two", receiver.secret)
    admin_client.post(f"{BASE}/{receiver.pk}/delete/", {"post": "yes"})
    assert not Receiver.objects.exists()


def test_a_secret_that_was_chosen_is_not_shown(admin_client: Client) -> None:
    fields = {
        "name": "pager",
        "kind": "webhook",
        "target": "https://hooks.example/a/b",
        "secret": "chosen by the operator",
        "min_severity": "critical",
        "enabled": "on",
    }
    made = admin_client.post(f"{BASE}/add/", fields, follow=True)
    assert made.redirect_chain[-1][0] == "/console/alarms/receivers/"
    assert Receiver.objects.get().secret == fields["secret"]
    assert fields["secret"] not in made.content.decode()


def test_a_viewer_looks(viewer: Client) -> None:
    receiver = webhook("https://hooks.example/secret/path")
    shown = viewer.get(f"{BASE}/{receiver.pk}/change/").content.decode()
    assert "hooks.example" in shown and "secret/path" not in shown and "TEST SECRET" not in shown
    assert viewer.get(f"{BASE}/add/").status_code == 403
