"""The second factor: set up, asked for, used once, throttled, and required for roles."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth
from django.contrib.auth.models import Group, User
from django.test import Client

from relay.access.sign_in import throttle
from relay.audit.models import AuditEntry
from tests.relay.access import test_sign_in
from tests.relay.access.test_sign_in import PASSWORD, sign_in

pytestmark = pytest.mark.django_db

olga = test_sign_in.olga
stopped_clock = test_sign_in.stopped_clock

FACTOR = "/admin/account/second-factor/"
AUTHENTICATE = f"{FACTOR}authenticate/"
PERIOD_S = 30


BEGIN = 1_800_000_010


class Clock:
    """Unix time in seconds, stopped so that no code expires between computation and check."""

    def __init__(self) -> None:
        self.now = BEGIN

    def time(self) -> int:
        return self.now


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "time", CLOCK)
    monkeypatch.setattr(CLOCK, "now", BEGIN)


def code_of(secret: str) -> str:
    return auth.format_hotp_value(auth.hotp_value(secret, CLOCK.now // PERIOD_S))


def activate(client: Client) -> str:
    """Set up an authenticator as an app does; return its secret, once a new code is valid."""
    asked = client.get(f"{FACTOR}totp/activate/")
    if asked.status_code == 302:
        assert client.post(asked["Location"], {"password": PASSWORD}).status_code == 302
    page = client.get(f"{FACTOR}totp/activate/").content.decode()
    found = re.search(r'value="([A-Z2-7]{32})"', page)
    assert found is not None, page
    answer = client.post(f"{FACTOR}totp/activate/", {"code": code_of(found[1])})
    assert answer.status_code == 302, answer.content.decode()
    CLOCK.now += PERIOD_S
    return found[1]


def signed_out(client: Client) -> Client:
    client.post("/admin/logout/")
    return client


def test_it_is_asked_for(client: Client, olga: User) -> None:
    sign_in(client)
    secret = activate(client)
    answer = sign_in(signed_out(client))
    assert answer["Location"] == AUTHENTICATE
    assert "_auth_user_id" not in client.session, "the password alone is not enough"
    assert client.get("/console/access/").status_code == 302
    wrong = client.post(AUTHENTICATE, {"code": "000000"})
    assert "Incorrect code" in wrong.content.decode()
    right = client.post(AUTHENTICATE, {"code": code_of(secret)})
    assert (right.status_code, right["Location"]) == (302, "/console/access/")
    assert client.get("/console/access/").status_code == 200
    actions = [(entry.action, entry.target) for entry in AuditEntry.objects.order_by("number")]
    assert actions == [
        ("account.sign_in", "olga"),
        ("account.second_factor", "olga"),
        ("account.second_factor", "olga"),
        ("account.sign_out", "olga"),
        ("account.sign_in_failed", "olga"),
        ("account.sign_in", "olga"),
    ]


def test_behind_a_unix_socket_there_is_no_address(olga: User) -> None:
    """Signing in works when a local proxy names no client; the server then reports `unix`."""
    client = Client(REMOTE_ADDR="unix")
    sign_in(client, address="unix")
    secret = activate(client)
    sign_in(signed_out(client), address="unix")
    assert client.post(AUTHENTICATE, {"code": code_of(secret)}).status_code == 302
    assert client.get("/console/access/own/").status_code == 200


def test_a_sign_in_that_waits_for_its_code_ends_when_the_password_changes(
    client: Client, olga: User
) -> None:
    sign_in(client)
    secret = activate(client)
    sign_in(signed_out(client))
    olga.set_password("another-long-password-of-a-test")
    olga.save()
    answer = client.post(AUTHENTICATE, {"code": code_of(secret)}, follow=True)
    assert answer.redirect_chain == [("/admin/login/", 302)]
    assert "The password of this account was changed" in answer.content.decode()
    assert "_auth_user_id" not in client.session
    assert client.get(AUTHENTICATE).status_code == 302, "nothing waits for a code any more"


def test_a_code_works_once(client: Client, olga: User) -> None:
    sign_in(client)
    secret = activate(client)
    code = code_of(secret)
    sign_in(signed_out(client))
    assert client.post(AUTHENTICATE, {"code": code}).status_code == 302
    sign_in(signed_out(client))
    assert "Incorrect code" in client.post(AUTHENTICATE, {"code": code}).content.decode()


def test_the_code_of_the_activation_is_spent(client: Client, olga: User) -> None:
    sign_in(client)
    secret = activate(client)
    CLOCK.now -= PERIOD_S
    sign_in(signed_out(client))
    spent = client.post(AUTHENTICATE, {"code": code_of(secret)})
    assert "Incorrect code" in spent.content.decode()


def test_recovery_codes(client: Client, olga: User) -> None:
    sign_in(client)
    activate(client)
    page = client.get(f"{FACTOR}recovery-codes/").content.decode()
    codes = re.findall(r"\b[0-9]{8}\b", page.partition("<textarea")[2].partition("</textarea")[0])
    assert len(codes) == 10
    for expected in (302, 200):
        sign_in(signed_out(client))
        assert client.post(AUTHENTICATE, {"code": codes[0]}).status_code == expected


def test_codes_are_not_guessed(client: Client, olga: User) -> None:
    sign_in(client)
    secret = activate(client)
    sign_in(signed_out(client))
    for number in range(throttle.CODE.free):
        client.post(AUTHENTICATE, {"code": f"00000{number}"})
    page = client.post(AUTHENTICATE, {"code": code_of(secret)}).content.decode()
    assert "Too many failures" in page or "Too many failed" in page
    assert "_auth_user_id" not in client.session


def test_the_secret_is_stored_encrypted(client: Client, olga: User) -> None:
    sign_in(client)
    secret = activate(client)
    stored = Authenticator.objects.get(type="totp").data
    assert secret not in str(stored)


def test_changing_it_needs_the_password_again(client: Client, olga: User) -> None:
    sign_in(client)
    activate(client)
    session = client.session
    for record in (records := session["account_authentication_methods"]):
        record["at"] -= 3600
    session["account_authentication_methods"] = records
    session.save()
    answer = client.get(f"{FACTOR}totp/deactivate/")
    assert answer.status_code == 302 and "again" in answer["Location"]
    page = client.get(answer["Location"])
    assert page.status_code == 200 and "Enter your password" in page.content.decode()
    code_page = "/admin/account/second-factor/reauthenticate/"
    assert client.post(code_page, {"code": "000000"}).status_code == 200
    failed = AuditEntry.objects.filter(action="account.sign_in_failed").get()
    assert failed.after == {"why": "code"}
    assert client.post(answer["Location"], {"password": PASSWORD}).status_code == 302
    assert client.post(f"{FACTOR}totp/deactivate/").status_code == 302
    assert not Authenticator.objects.filter(type="totp").exists()


@pytest.fixture
def demand(settings: Any) -> None:
    """Require a second factor of operators and higher roles."""
    access = dataclasses.replace(settings.RMB.access, require_totp=("operator",))
    settings.RMB = dataclasses.replace(settings.RMB, access=access)


@pytest.mark.parametrize(
    ("role", "demanded"), [("viewer", False), ("operator", True), ("owner", True)]
)
def test_roles_that_must_have_one(
    client: Client, olga: User, demand: None, role: str, demanded: bool
) -> None:
    User.objects.filter(pk=olga.pk).update(is_superuser=False)
    olga.groups.add(Group.objects.get(name=role))
    sign_in(client)
    answer = client.get("/console/access/own/")
    assert answer.status_code == (302 if demanded else 200)
    api = client.get("/api/v1/sessions")
    assert (api.status_code == 403) is demanded, api.content
    if demanded:
        assert answer["Location"] == f"{FACTOR}totp/activate/"
        activate(client)
        assert client.get("/console/access/own/").status_code == 200
        assert client.get("/api/v1/sessions").status_code == 200


def test_a_header_is_no_way_around_it(client: Client, olga: User, demand: None) -> None:
    sign_in(client)
    answer = client.get("/console/access/own/", headers={"authorization": "Bearer of nothing"})
    assert answer.status_code == 302 and answer["Location"] == f"{FACTOR}totp/activate/"
    assert client.get("/api/v1/me", headers={"authorization": "Bearer x"}).status_code == 401


def test_superusers_are_owners(client: Client, olga: User, demand: None) -> None:
    sign_in(client)
    assert client.get("/console/access/own/").status_code == 302
    assert client.get("/admin/logout/").status_code == 405, "leaving is always possible"
    assert client.post("/admin/logout/").status_code == 200


def test_an_owner_takes_a_lost_one_away(client: Client, olga: User) -> None:
    sign_in(client)
    activate(client)
    boss = Client()
    boss.force_login(User.objects.create_superuser("boss"))
    assert boss.post(f"/console/access/{olga.pk}/reset-second-factor/").status_code == 302
    assert not Authenticator.objects.filter(user=olga).exists()
    assert AuditEntry.objects.first().action == "account.reset_second_factor"  # type: ignore[union-attr]
    assert sign_in(signed_out(client))["Location"] == "/console/access/"
