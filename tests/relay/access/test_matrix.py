"""The permission matrix: groups, services and the admin all say what it says."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.test import Client, RequestFactory
from django.urls import NoReverseMatch, reverse

from relay.access import actor, matrix
from relay.access.actor import Actor, Face
from relay.access.errors import Denied
from relay.access.matrix import Role
from relay.audit import services as audit
from relay.audit.models import AuditEntry
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

CALLERS = (*Role, None)
MODELS = sorted(
    (model for model in admin.site._registry if model._meta.label != "admin.LogEntry"),
    key=lambda model: model._meta.label,
)
# Django's and the sign-in's own, which the site has no pages for but those of accounts and groups.
FOREIGN = {"account", "admin", "contenttypes", "mfa", "sessions", "socialaccount"}


def account(role: Role | None) -> User:
    user = User.objects.create_user(f"the-{role}", is_staff=True)
    if role:
        user.groups.add(Group.objects.get(name=role))
    return user


def may(role: Role | None, permission: str) -> bool:
    return role is not None and permission in matrix.permissions_of(role)


def test_every_permission_is_in_the_matrix() -> None:
    declared = {
        f"{permission.content_type.app_label}.{permission.codename}"
        for permission in Permission.objects.select_related("content_type")
        if permission.content_type.app_label not in FOREIGN
        and permission.content_type.model != "permission"
    }
    assert declared == matrix.all_permissions()


def test_names() -> None:
    names = [action.name for action in matrix.ACTIONS]
    assert len(names) == len(set(names))
    assert all(name.count(".") == 1 and len(name) <= 64 for name in names)
    assert {action.role for action in matrix.ACTIONS if action.name.endswith(".view")} <= {
        Role.VIEWER,
        Role.OWNER,
    }


def test_roles_rise() -> None:
    viewer, operator, owner = (matrix.permissions_of(role) for role in Role)
    assert viewer < operator < owner == matrix.all_permissions()


def test_groups_are_made_true_again(django_db_blocker: object) -> None:
    viewer = Group.objects.get(name="viewer")
    viewer.permissions.set(Permission.objects.filter(codename="delete_user"))
    Group.objects.get(name="owner").delete()
    call_command("migrate", verbosity=0)
    for role in Role:
        held = account(role).get_all_permissions()
        assert held == matrix.permissions_of(role), role


@pytest.mark.parametrize("role", CALLERS)
def test_services(role: Role | None) -> None:
    """`audit.change` is what each changing service goes through."""
    request = RequestFactory().get("/")
    request.user = account(role)
    who = actor.of_request(request, Face.ADMIN)
    for action in matrix.ACTIONS:
        before = AuditEntry.objects.count()
        allowed = role is not None and role.includes(action.role)
        if allowed:
            with audit.change(who, action.name, target="x"):
                pass
        else:
            with pytest.raises(Denied), audit.change(who, action.name, target="x"):
                raise AssertionError("inside")
        assert AuditEntry.objects.count() == before + allowed, action.name


@pytest.mark.parametrize("role", CALLERS)
def test_pages(role: Role | None, client: Client, site_redis: RedisServer) -> None:
    client.force_login(account(role))
    held = matrix.permissions_of(role) if role else frozenset()
    for model in MODELS:
        app, name = model._meta.app_label, model._meta.model_name
        for page, verb in (("changelist", "view"), ("add", "add")):
            try:
                path = reverse(f"admin:{app}_{name}_{page}")
            except NoReverseMatch:
                continue
            status = client.get(path).status_code
            if page == "changelist":
                assert status == (200 if may(role, f"{app}.{verb}_{name}") else 403), path
            else:  # some are added by what has another name, such as silences
                rights = {each for each in held if not each.partition(".")[2].startswith("view_")}
                assert status == 403 or any(each.startswith(f"{app}.") for each in rights), path


@pytest.mark.parametrize("role", CALLERS)
def test_actions_of_pages(role: Role | None) -> None:
    """Nobody is offered, or can post, what changes something without a permission that does."""
    request = RequestFactory().get("/")
    request.user = account(role)
    changing = {
        name.partition(".")[0]
        for name in request.user.get_all_permissions()
        if not name.partition(".")[2].startswith("view_")
    }
    for model in MODELS:
        page = admin.site._registry[model]
        for name, (function, _, _) in page.get_actions(request).items():
            assert getattr(function, "allowed_permissions", ()), f"{model}: {name} asks for nothing"
            assert model._meta.app_label in changing, f"{model}: {name} is offered to {role}"


def test_a_stranger_sees_nothing(client: Client) -> None:
    for model in MODELS:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
        assert client.get(reverse(name)).status_code == 302


def test_a_deactivated_account_may_nothing() -> None:
    request = RequestFactory().get("/")
    request.user = User(username="x", is_active=False, is_superuser=True)
    who = actor.of_request(request, Face.ADMIN)
    assert who.permissions == frozenset() and not who.may("auth.view_user")


def test_an_actor_of_a_command_may_everything() -> None:
    who = actor.of_command()
    assert who.face is Face.CLI and who.permissions is None and who.name
    assert isinstance(who, Actor) and apps.is_installed("relay.access")


def test_an_owner_is_no_superuser(client: Client) -> None:
    """And makes none: neither of himself nor of others, and resets nobody's password who is one."""
    owner = account(Role.OWNER)
    boss = User.objects.create_superuser("boss")
    client.force_login(owner)
    form = {
        "username": owner.username, "is_active": "on", "is_staff": "on", "is_superuser": "on",
        "groups": str(Group.objects.get(name="owner").pk),
        "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00",
    }  # fmt: skip
    assert client.post(f"/admin/auth/user/{owner.pk}/change/", form).status_code == 302
    owner.refresh_from_db()
    assert not owner.is_superuser
    passwords = {"password1": "a new password 1", "password2": "a new password 1"}
    path = f"/admin/auth/user/{boss.pk}/password/"
    assert client.post(path, passwords).status_code == 403
    assert client.post(f"/admin/auth/user/{boss.pk}/delete/", {"post": "yes"}).status_code == 403
    assert User.objects.filter(pk=boss.pk).exists()


def test_changes_of_accounts_and_groups_are_written_down(admin_client: Client) -> None:
    form = {
        "username": "olga", "usable_password": "true",
        "password1": "a new password 1", "password2": "a new password 1",
    }  # fmt: skip
    assert admin_client.post("/admin/auth/user/add/", form).status_code == 302
    olga = User.objects.get(username="olga")
    path = f"/admin/auth/user/{olga.pk}"
    assert admin_client.post(f"{path}/password/", form).status_code == 302
    assert admin_client.post("/admin/auth/group/add/", {"name": "night"}).status_code == 302
    role = Group.objects.get(name="viewer")
    answer = admin_client.post(f"/admin/auth/group/{role.pk}/change/", {"name": "x"})
    assert answer.status_code == 403
    assert admin_client.post(f"{path}/delete/", {"post": "yes"}).status_code == 302
    entries = AuditEntry.objects.filter(face="admin").exclude(action="account.sign_in")
    found = [(entry.action, entry.target) for entry in entries.order_by("number")]
    assert found == [
        ("account.add", "olga"), ("account.change", "olga"), ("group.add", "night"),
        ("account.delete", "olga"),
    ]  # fmt: skip
    assert "a new password" not in str([(e.before_json, e.after_json) for e in entries])
