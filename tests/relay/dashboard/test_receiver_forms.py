"""Adding, changing and removing a receiver in the console, and what is never shown of it."""

from __future__ import annotations

import pytest

from relay.access.matrix import Role
from relay.alarms.models import Receiver
from tests.relay.alarms.conftest import webhook
from tests.relay.dashboard.conftest import SignIn

pytestmark = pytest.mark.django_db

BASE = "/console/alarms/receivers/"
FIELDS = {
    "name": "pager",
    "kind": "webhook",
    "target": "https://hooks.example/a/b",
    "secret": "",
    "min_severity": "critical",
    "enabled": "on",
}


def test_a_receiver_by_its_form(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    wrong = owner.post(f"{BASE}add/", {**FIELDS, "target": "ftp://x"})
    assert "must be https" in wrong.content.decode()
    made = owner.post(f"{BASE}add/", FIELDS)
    receiver = Receiver.objects.get()
    assert made.status_code == 200 and f">{receiver.secret}</pre>" in made.content.decode()
    assert "no-store" in made["Cache-Control"]
    assert "messages" not in made.cookies and "_messages" not in owner.session
    form = owner.get(f"{BASE}{receiver.pk}/change/").content.decode()
    assert receiver.secret not in form and FIELDS["target"] in form
    answer = owner.post(f"{BASE}{receiver.pk}/change/", {**FIELDS, "name": "two"}, follow=True)
    assert receiver.secret not in answer.content.decode()
    assert Receiver.objects.values_list("name", "secret").get() == ("two", receiver.secret)
    assert owner.post(f"{BASE}{receiver.pk}/remove/").status_code == 302
    assert not Receiver.objects.exists()


def test_a_secret_that_was_chosen_is_not_shown(sign_in: SignIn) -> None:
    chosen = "chosen by the operator"
    made = sign_in(Role.OWNER).post(f"{BASE}add/", {**FIELDS, "secret": chosen}, follow=True)
    assert made.redirect_chain[-1][0] == BASE
    assert Receiver.objects.get().secret == chosen
    assert chosen not in made.content.decode()


def test_a_viewer_looks(sign_in: SignIn) -> None:
    viewer, receiver = sign_in(Role.VIEWER), webhook("https://hooks.example/secret/path")
    shown = viewer.get(BASE).content.decode()
    assert "hooks.example" in shown and "secret/path" not in shown and "TEST SECRET" not in shown
    for path in ("add/", f"{receiver.pk}/change/", f"{receiver.pk}/remove/"):
        assert viewer.get(f"{BASE}{path}").status_code == 403
