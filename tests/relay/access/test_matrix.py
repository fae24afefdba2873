"""The permission matrix: groups, services and the admin site all follow it."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.test import Client, RequestFactory

from relay.access import actor, matrix
from relay.access.actor import Actor, Face
from relay.access.errors import Denied
from relay.access.matrix import Role
from relay.audit import services as audit
from relay.audit.models import AuditEntry

pytestmark = pytest.mark.django_db

CALLERS = (*Role, None)
# Apps of Django and of the sign-in; the site has pages for accounts and groups only.
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
    """`audit.change`, which every changing service uses, applies the matrix."""
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


def test_no_raw_form_is_left(admin_client: Client) -> None:
    """Django's forms, which would bypass the rules of the services, do not exist."""
    assert not admin.site._registry
    for path in ("auth/user/", "auth/user/add/", "auth/group/", "relay_twins/twin/add/"):
        assert admin_client.get(f"/admin/{path}").status_code == 404, path


def test_a_deactivated_account_may_nothing() -> None:
    request = RequestFactory().get("/")
    request.user = User(username="x", is_active=False, is_superuser=True)
    who = actor.of_request(request, Face.ADMIN)
    assert who.permissions == frozenset() and not who.may("auth.view_user")


def test_an_actor_of_a_command_may_everything() -> None:
    who = actor.of_command()
    assert who.face is Face.CLI and who.permissions is None and who.name
    assert isinstance(who, Actor) and apps.is_installed("relay.access")
