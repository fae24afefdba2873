"""`relay.access.accounts` and `groups`: no account raises its own rights, and one owner remains."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth import authenticate
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import IntegrityError

from relay.access import accounts, groups, matrix
from relay.access.actor import Actor, Face
from relay.access.errors import Beyond, Conflict, Denied, Invalid, NotFound
from relay.audit.models import AuditEntry
from relay.ops.accounts import make_first_operator

pytestmark = pytest.mark.django_db

ALL = Actor("root", Face.CLI, "host", None)
OWNER = Actor("olga", Face.REST, "", matrix.permissions_of(matrix.Role.OWNER), "olga")
NARROW = Actor("eve", Face.REST, "", frozenset({"auth.change_user", "auth.change_group"}), "eve")
NOBODY = Actor("nobody", Face.REST, "", frozenset())
PASSWORD = "a password for tests"


def make(name: str, *names: str, actor: Actor = ALL, **values: Any) -> User:
    return accounts.create_account(name, groups=names, actor=actor, **values)


def entries() -> list[tuple[str, str]]:
    found = AuditEntry.objects.order_by("number")
    return [(entry.action, entry.target) for entry in found]


def log() -> str:
    return str(list(AuditEntry.objects.values_list("before_json", "after_json", "target")))


@pytest.fixture
def olga() -> User:
    """Make the only owner."""
    return make("olga", "owner", password=PASSWORD)


def test_an_account_from_its_making_to_its_end(olga: User) -> None:
    made = make(
        "vera", "viewer", password=PASSWORD, permissions=["auth.view_user"], actor=OWNER,
        email="vera@Relay.Example",
    )  # fmt: skip
    assert authenticate(username="vera", password=PASSWORD) == made
    assert made.email == "vera@relay.example" and made.has_perm("auth.view_user")
    changed = accounts.change_account(
        made.pk, username="vera2", groups=["operator"], permissions=[], actor=OWNER
    )
    assert accounts.told(changed) == {
        "username": "vera2", "email": "vera@relay.example", "first_name": "", "last_name": "",
        "is_active": True, "is_staff": True, "is_superuser": False,
        "groups": ["operator"], "permissions": [],
    }  # fmt: skip
    accounts.set_password(made.pk, "another password", actor=OWNER)
    assert authenticate(username="vera2", password="another password") == made
    accounts.set_password(made.pk, None, actor=OWNER)
    assert not User.objects.get(pk=made.pk).has_usable_password()
    accounts.change_account(made.pk, is_active=True, actor=OWNER)
    accounts.delete_account(made.pk, actor=OWNER)
    assert entries() == [
        ("account.add", "olga"), ("account.add", "vera"), ("account.change", "vera"),
        ("account.change", "vera2"), ("account.change", "vera2"), ("account.delete", "vera2"),
    ]  # fmt: skip
    assert PASSWORD not in log() and "another password" not in log() and "pbkdf2" not in log()
    with pytest.raises(NotFound):
        accounts.delete_account(made.pk, actor=OWNER)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"username": "olga"}, "username"),
        ({"username": "a b"}, "username"),
        ({"email": "none"}, "email"),
        ({"first_name": "x" * 151}, "first_name"),
        ({"password": "brief"}, "password"),
        ({"password": "password1234"}, "password"),
        ({"password": "x" * 5000}, "password"),
        ({"groups": ["night"]}, "groups"),
        ({"permissions": ["auth.become_god"]}, "permissions"),
    ],
)
def test_values_that_are_none(olga: User, values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        accounts.create_account(**{"username": "vera", **values}, actor=OWNER)
    assert set(refused.value.fields) == {field}
    assert values.get("password", PASSWORD) not in refused.value.detail
    assert User.objects.count() == 1 and len(entries()) == 1


def test_nobody_touches_who_may_more(olga: User) -> None:
    boss = make("boss", is_superuser=True)
    vera = make("vera", "viewer")
    for actor, account in ((OWNER, boss), (NARROW, olga), (NARROW, boss), (NARROW, vera)):
        before = entries()
        for touch in (
            lambda pk, who: accounts.change_account(pk, first_name="x", actor=who),
            lambda pk, who: accounts.set_password(pk, PASSWORD, actor=who),
        ):
            with pytest.raises(Beyond):
                touch(account.pk, actor)
        assert entries() == before
    with pytest.raises(Beyond):
        accounts.delete_account(boss.pk, actor=OWNER)
    with pytest.raises(Beyond):
        accounts.reset_second_factor(boss.pk, actor=OWNER)
    nothing = make("nothing")
    for more in (
        {"groups": ["viewer"]}, {"permissions": ["auth.view_user"]}, {"is_superuser": True},
    ):  # fmt: skip
        with pytest.raises(Beyond):
            accounts.change_account(nothing.pk, **more, actor=NARROW)
    with pytest.raises(Beyond):
        make("second boss", is_superuser=True, actor=OWNER)
    accounts.change_account(nothing.pk, permissions=["auth.change_user"], actor=NARROW)
    with pytest.raises(Denied, match="permission auth"):
        accounts.delete_account(nothing.pk, actor=NARROW)


@pytest.mark.parametrize(
    "change",
    [{"groups": ["operator"]}, {"is_active": False}, {"is_staff": False}],
    ids=lambda change: next(iter(change)),
)
def test_the_last_owner_stays_one(olga: User, change: dict[str, Any]) -> None:
    sleeping = make("sleeping", "owner", is_active=False)
    outside = make("outside", "owner", is_staff=False)
    with pytest.raises(Conflict, match="last owner"):
        accounts.change_account(olga.pk, **change, actor=OWNER)
    with pytest.raises(Conflict, match="last owner"):
        accounts.delete_account(olga.pk, actor=ALL)
    accounts.change_account(olga.pk, first_name="Olga", actor=OWNER)
    accounts.delete_account(sleeping.pk, actor=OWNER)
    accounts.change_account(outside.pk, is_staff=True, actor=OWNER)
    accounts.change_account(olga.pk, **change, actor=ALL)
    with pytest.raises(Conflict, match="last owner"):
        accounts.delete_account(outside.pk, actor=ALL)


def test_a_superuser_is_an_owner_too() -> None:
    boss = make("boss", is_superuser=True)
    for fields in ({"is_superuser": False}, {"is_active": False}):
        with pytest.raises(Conflict, match="last owner"):
            accounts.change_account(boss.pk, **fields, actor=ALL)
    accounts.change_account(boss.pk, is_superuser=False, groups=["owner"], actor=ALL)
    assert accounts.standing(User.objects.get()).owner


def test_a_second_factor_is_taken_away_once(olga: User) -> None:
    Authenticator.objects.create(user=olga, type="totp", data={})
    assert accounts.with_second_factor([olga.pk]) == {olga.pk}
    assert accounts.reset_second_factor(olga.pk, actor=OWNER) is True
    assert accounts.reset_second_factor(olga.pk, actor=OWNER) is False
    assert [action for action, _ in entries()].count("account.reset_second_factor") == 1
    removed = AuditEntry.objects.filter(action="account.second_factor").latest("number")
    assert (removed.after, removed.actor) == ({"removed": "totp"}, "olga"), "by who took it away"


def test_groups(olga: User) -> None:
    night = groups.create_group("night", ["relay_sessions.kick_session"], actor=OWNER)
    vera = make("vera", "night", actor=OWNER)
    assert vera.has_perm("relay_sessions.kick_session")
    groups.change_group(night.pk, permissions=["relay_ops.drain_worker"], actor=OWNER)
    groups.change_group(night.pk, name="day", actor=OWNER)
    vera = User.objects.get(pk=vera.pk)
    assert vera.get_all_permissions() == {"relay_ops.drain_worker"}
    for wrong in ({"name": "owner"}, {"name": ""}, {"permissions": ["x.y"]}):
        with pytest.raises(Invalid):
            groups.change_group(night.pk, **wrong, actor=OWNER)
    with pytest.raises(Beyond):
        groups.change_group(night.pk, permissions=[], actor=NARROW)
    empty = groups.create_group("empty", actor=OWNER)
    with pytest.raises(Beyond):
        groups.change_group(empty.pk, permissions=["auth.view_user"], actor=NARROW)
    with pytest.raises(Denied):
        groups.create_group("mine", actor=NARROW)
    groups.delete_group(night.pk, actor=OWNER)
    assert User.objects.get(pk=vera.pk).get_all_permissions() == set()
    assert [each for each in entries() if each[0].startswith("group")] == [
        ("group.add", "night"), ("group.change", "night"), ("group.change", "night"),
        ("group.add", "empty"), ("group.delete", "day"),
    ]  # fmt: skip


@pytest.mark.parametrize("role", matrix.Role)
def test_the_roles_are_fixed(role: matrix.Role) -> None:
    group = Group.objects.get(name=role.value)
    for touch in (
        lambda: groups.change_group(group.pk, name="x", actor=ALL),
        lambda: groups.change_group(group.pk, permissions=[], actor=ALL),
        lambda: groups.delete_group(group.pk, actor=ALL),
    ):
        with pytest.raises(Conflict, match="is a role"):
            touch()


def test_an_owner_does_not_lock_themselves_out(olga: User) -> None:
    other = make("other", "owner")
    for touch in (
        lambda: accounts.change_account(olga.pk, is_active=False, actor=OWNER),
        lambda: accounts.change_account(olga.pk, groups=["viewer"], actor=OWNER),
        lambda: accounts.delete_account(olga.pk, actor=OWNER),
    ):
        with pytest.raises(Conflict, match="your own account; ask another owner"):
            touch()
    accounts.change_account(other.pk, groups=["viewer"], actor=OWNER)
    assert entries()[-1] == ("account.change", "other")


def test_commands_of_django_are_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    new = ("createsuperuser", "--noinput", "--username", "boss", "--email", "")
    call_command(*new, stdout=StringIO())
    monkeypatch.setattr("getpass.getpass", lambda *_, **__: "another password")
    call_command("changepassword", "boss", stdout=StringIO())
    assert authenticate(username="boss", password="another password") is not None
    assert entries() == [("account.add", "boss"), ("account.change", "boss")]
    assert {entry.face for entry in AuditEntry.objects.all()} == {"cli"}
    assert PASSWORD not in log() and "another password" not in log()
    with pytest.raises((CommandError, IntegrityError)):
        call_command(*new, stdout=StringIO(), stderr=StringIO())
    User.objects.get().save()
    assert len(entries()) == 2, "only what the commands store"


def test_what_cannot_be_stored_is_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    make("boss", is_superuser=True)

    def fail(*_: Any, **__: Any) -> None:
        raise IntegrityError("the disk is full")

    monkeypatch.setattr("getpass.getpass", lambda *_, **__: "another password")
    monkeypatch.setattr(User, "_save_table", fail)
    with pytest.raises(IntegrityError):
        call_command("changepassword", "boss", stdout=StringIO())
    assert entries() == [("account.add", "boss")]


def test_the_first_operator_is_written_down() -> None:
    made = make_first_operator()
    assert made is not None
    (entry,) = AuditEntry.objects.all()
    assert (entry.action, entry.target, entry.actor) == ("account.add", made.name, "system")
    assert made.password not in log()
