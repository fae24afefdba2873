"""Accounts in the console: what is shown of an account, and everything an owner does with it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, User
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from relay.access.matrix import Role
from relay.access.models import AccountUse
from relay.audit.models import AuditEntry
from tests.relay.dashboard.conftest import SignIn

pytestmark = pytest.mark.django_db

BASE = "/console/access"
PASSWORD = "a password for tests"
SECRET = re.compile(r'id="secret"[^>]*>([^<]+)<')


def text(client: Client, path: str) -> str:
    answer = client.get(f"{BASE}/{path}")
    assert answer.status_code == 200, path
    return answer.content.decode()


def audited() -> list[tuple[str, str]]:
    entries = AuditEntry.objects.exclude(action__startswith="account.sign").order_by("number")
    return [(entry.action, entry.target) for entry in entries]


def add(client: Client, **fields: Any) -> tuple[User, str]:
    """Add the account vera; return it and its one-time password."""
    form = {"username": "vera", "role": "viewer", "password": "one-time", **fields}
    answer = client.post(f"{BASE}/add/", form)
    found = SECRET.search(answer.content.decode())
    assert found is not None, answer.content.decode()
    assert "no-store" in answer["Cache-Control"]
    return User.objects.get(username="vera"), found[1]


def sign_in_by(password: str, name: str = "vera", **options: Any) -> Client:
    client = Client()
    answer = client.post("/admin/login/", {"username": name, "password": password}, **options)
    assert answer.status_code == 302, answer.content.decode()
    return client


def replace(client: Client, password: str) -> None:
    """Replace a one-time password."""
    new = {"new_password1": PASSWORD, "new_password2": PASSWORD}
    answer = client.post("/admin/password_change/", {"old_password": password, **new})
    assert answer.status_code == 302, answer.content.decode()


def test_a_viewer_who_was_added_signs_in(sign_in: SignIn) -> None:
    """A new viewer can sign in by the group alone, without setting a flag of Django's."""
    owner = sign_in(Role.OWNER)
    vera, password = add(owner, first_name="Vera", email="vera@relay.example")
    assert vera.is_staff and [group.name for group in vera.groups.all()] == ["viewer"]
    hers = sign_in_by(password, REMOTE_ADDR="192.0.2.7")
    for path in ("/console/sessions/", "/console/", "/admin/"):
        assert hers.get(path)["Location"] == "/admin/password_change/", "it is for one time"
    assert hers.get("/api/v1/me").status_code == 403
    menu = 'href="/console/sessions/"'
    assert menu not in hers.get("/admin/password_change/").content.decode()
    assert "one-time" in text(owner, f"{vera.pk}/")
    same = {"old_password": password, "new_password1": password, "new_password2": password}
    answer = hers.post("/admin/password_change/", same)
    assert "choose another one" in answer.content.decode()
    replace(hers, password)
    assert hers.get("/console/sessions/").status_code == 200
    assert menu in hers.get("/admin/password_change/").content.decode()
    page = text(owner, f"{vera.pk}/")
    assert "one-time" not in page and "192.0.2.7" in page and "password" in page
    assert password not in page and "vera@relay.example" in page
    listed = text(owner, "")
    assert "Vera" in listed and password not in listed
    assert audited() == [("account.add", "vera"), ("account.change", "vera")]
    assert password not in str(list(AuditEntry.objects.values_list("after_json", flat=True)))


def test_an_account_without_a_password(sign_in: SignIn) -> None:
    answer = sign_in(Role.OWNER).post(f"{BASE}/add/", {"username": "by-oidc", "role": "operator"})
    assert answer["Location"] == f"{BASE}/"
    assert not User.objects.get(username="by-oidc").has_usable_password()


def test_wrong_values_are_told(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    add(owner)
    for change, told in (
        ({"username": "vera"}, "already exists"),
        ({"username": "a b"}, "valid username"),
        ({"email": "x"}, "valid email"),
        ({"role": "superuser"}, "Select a valid choice"),
    ):
        form = {"username": "new", "role": "viewer", **change}
        assert told in owner.post(f"{BASE}/add/", form).content.decode(), change
    assert User.objects.count() == 2


def test_a_role_is_changed(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    Group.objects.create(name="night shift")
    vera, _ = add(owner, groups=["night shift"])
    page = text(owner, f"{vera.pk}/change/")
    assert 'value="viewer" selected' in page and 'value="night shift" selected' in page
    form = {"username": "vera", "role": "operator", "last_name": "Verdi"}
    assert owner.post(f"{BASE}/{vera.pk}/change/", form)["Location"] == f"{BASE}/{vera.pk}/"
    vera = User.objects.get(pk=vera.pk)
    assert [group.name for group in vera.groups.all()] == ["operator"]
    assert vera.last_name == "Verdi"


def test_an_account_of_before_is_let_in(sign_in: SignIn) -> None:
    """Enabling lets in an old account, which Django's form left without access to the site."""
    old = User.objects.create_user("old", password=PASSWORD)
    owner = sign_in(Role.OWNER)
    assert "no access" in text(owner, f"{old.pk}/")
    owner.post(f"{BASE}/{old.pk}/enable/")
    sign_in_by(PASSWORD, "old")


def test_disabled_and_enabled(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    vera, password = add(owner)
    hers = sign_in_by(password)
    replace(hers, password)
    assert "is disabled" in owner.post(f"{BASE}/{vera.pk}/disable/", follow=True).content.decode()
    assert hers.get("/console/sessions/").status_code == 302
    assert "disabled" in text(owner, "?active=no")
    owner.post(f"{BASE}/{vera.pk}/enable/")
    assert sign_in_by(PASSWORD).get("/console/sessions/").status_code == 200


def test_sessions_are_listed_and_ended(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    vera, password = add(owner)
    first = sign_in_by(password)
    replace(first, password)
    second = sign_in_by(PASSWORD, REMOTE_ADDR="192.0.2.8")
    page = text(owner, f"{vera.pk}/")
    assert page.count('data-label="Signed in"') == 2 and "192.0.2.8" in page
    answer = owner.post(f"{BASE}/{vera.pk}/end-sessions/", follow=True)
    assert "2 sessions of vera ended" in answer.content.decode()
    for client in (first, second):
        assert client.get("/console/sessions/").status_code == 302
    assert owner.get("/console/sessions/").status_code == 200, "nobody else's"
    assert "No browser is signed in" in text(owner, f"{vera.pk}/")
    assert audited()[-1] == ("account.end_sessions", "vera")


def test_a_password_that_is_forgotten(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    vera, password = add(owner)
    hers = sign_in_by(password)
    replace(hers, password)
    found = SECRET.search(owner.post(f"{BASE}/{vera.pk}/password/").content.decode())
    assert found is not None and found[1] != password
    assert hers.get("/console/sessions/").status_code == 302
    again = sign_in_by(found[1])
    assert again.get("/console/sessions/")["Location"] == "/admin/password_change/"


def test_last_seen_is_written_once_a_minute(sign_in: SignIn) -> None:
    client = sign_in(Role.VIEWER)
    client.get("/console/access/own/", REMOTE_ADDR="192.0.2.7")
    first = AccountUse.objects.get()
    assert first.last_address == "192.0.2.7" and first.last_seen is not None
    client.get("/console/access/own/")
    assert AccountUse.objects.get().last_seen == first.last_seen
    AccountUse.objects.update(last_seen=timezone.now() - timedelta(seconds=61))
    client.get("/console/access/own/")
    seen = AccountUse.objects.get().last_seen
    assert seen is not None and seen >= first.last_seen


@pytest.mark.django_db(transaction=True)
def test_pages_stand_where_the_last_use_cannot_be_stored(sign_in: SignIn) -> None:
    def fail(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith(("INSERT", "UPDATE")) and AccountUse._meta.db_table in sql:
            raise OperationalError("database or disk is full")
        return execute(sql, *rest)

    client = sign_in(Role.VIEWER)
    with connection.execute_wrapper(fail):
        assert client.get("/console/sessions/").status_code == 200
    assert not AccountUse.objects.exists()


DOINGS: tuple[Callable[[int], tuple[str, dict[str, str]]], ...] = (
    lambda pk: (f"{pk}/disable/", {}),
    lambda pk: (f"{pk}/delete/", {}),
    lambda pk: (f"{pk}/change/", {"username": "a owner", "role": "viewer"}),
)


def test_nobody_locks_themselves_out(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    own = User.objects.get(username="a owner")
    User.objects.filter(pk=own.pk).update(username="a-owner")
    for doing in DOINGS:
        path, form = doing(own.pk)
        answer = owner.post(f"{BASE}/{path}", {**form, "username": "a-owner"}, follow=True)
        assert "last owner" in answer.content.decode(), path
    other = User.objects.create_user("other", is_staff=True)
    other.groups.add(Group.objects.get(name=Role.OWNER))
    for doing in DOINGS:
        path, form = doing(own.pk)
        answer = owner.post(f"{BASE}/{path}", {**form, "username": "a-owner"}, follow=True)
        assert "your own account" in answer.content.decode(), path
    own.refresh_from_db()
    assert own.is_active and own.groups.get().name == Role.OWNER


def test_an_owner_is_no_superuser(sign_in: SignIn) -> None:
    """An owner cannot change a superuser: setting its password would be becoming it."""
    owner, boss = sign_in(Role.OWNER), User.objects.create_superuser("boss", password=PASSWORD)
    Authenticator.objects.create(user=boss, type="totp", data={"secret": "A TEST SECRET"})
    page = text(owner, f"{boss.pk}/")
    assert "New password" not in page and "Disable" not in page and "A TEST SECRET" not in page
    for path in ("disable/", "enable/", "password/", "delete/", "end-sessions/"):
        assert owner.post(f"{BASE}/{boss.pk}/{path}").status_code == 403, path
    form = {"username": "boss", "role": "viewer"}
    assert owner.post(f"{BASE}/{boss.pk}/change/", form).status_code == 403
    boss.refresh_from_db()
    assert boss.is_superuser and boss.check_password(PASSWORD)
    assert [action for action, _ in audited()] == ["account.second_factor"], "the test itself"


def test_a_superuser_makes_one(admin_client: Client) -> None:
    vera, _ = add(admin_client, role="superuser")
    assert vera.is_superuser and not vera.groups.exists()


def test_an_account_is_deleted(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    vera, _ = add(owner)
    assert owner.post(f"{BASE}/{vera.pk}/delete/")["Location"] == f"{BASE}/"
    assert not User.objects.filter(pk=vera.pk).exists()
    assert audited()[-1] == ("account.delete", "vera")


def test_groups_of_ones_own(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    form = {"name": "night shift", "permissions": ["relay_ops.view_queue"]}
    assert owner.post(f"{BASE}/groups/add/", form).status_code == 302
    group = Group.objects.get(name="night shift")
    assert [each.codename for each in group.permissions.all()] == ["view_queue"]
    assert "selected" in text(owner, f"groups/{group.pk}/change/")
    owner.post(f"{BASE}/groups/{group.pk}/change/", {"name": "day shift"})
    group.refresh_from_db()
    assert group.name == "day shift" and not group.permissions.exists()
    role = Group.objects.get(name="viewer")
    answer = owner.post(f"{BASE}/groups/{role.pk}/change/", {"name": "x"})
    assert "viewer is a role" in answer.content.decode()
    owner.post(f"{BASE}/groups/{role.pk}/delete/")
    assert Group.objects.filter(name="viewer").exists()
    owner.post(f"{BASE}/groups/{group.pk}/delete/")
    assert not Group.objects.filter(pk=group.pk).exists()
    assert audited() == [
        ("group.add", "night shift"),
        ("group.change", "night shift"),
        ("group.delete", "day shift"),
    ]
