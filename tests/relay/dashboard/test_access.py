"""The access pages: accounts, groups, tokens, and one's own account."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from relay.access import matrix, services, tokens
from relay.access.actor import Actor, Face
from relay.access.matrix import Role
from relay.access.models import ApiToken
from relay.audit.models import AuditEntry
from tests.relay.dashboard.conftest import SignIn

pytestmark = pytest.mark.django_db

BASE = "/console/access"
CLI = Actor("root", Face.CLI, "", None)
TEXT = re.compile(r"rmb_[0-9a-f]{16}_[\w-]{43}")


def text(client: Client, path: str) -> str:
    answer = client.get(f"{BASE}/{path}")
    assert answer.status_code == 200, path
    return answer.content.decode()


def guard(user: User) -> None:
    """Give an account a second factor."""
    Authenticator.objects.create(user=user, type="totp", data={"secret": "A TEST SECRET"})


def test_accounts(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    boss = User.objects.create_superuser("boss")
    olga = User.objects.create_user("olga", is_staff=True)
    guard(olga)
    User.objects.create_user("gone", is_active=False)
    page = text(owner, "")
    assert "superuser: everything" in page and "owner" in page
    assert "disabled" in page and "the account may not use the site" not in page
    assert "A TEST SECRET" not in page
    assert f"{BASE}/{olga.pk}/disable/" in page
    assert f"{BASE}/{boss.pk}/disable/" not in page, "he may more than an owner"
    assert f"{BASE}/{olga.pk}/reset-second-factor/" in text(owner, f"{olga.pk}/")
    assert "olga" not in text(owner, "?active=no") and "gone" in text(owner, "?active=no")
    assert "boss" not in text(owner, "?group=owner")
    assert "olga" in text(owner, "?name=OLG")


def test_taking_a_second_factor_away(sign_in: SignIn) -> None:
    owner, boss = sign_in(Role.OWNER), User.objects.create_superuser("boss")
    olga = User.objects.create_user("olga")
    guard(boss)
    guard(olga)
    path = f"{BASE}/{olga.pk}/reset-second-factor/"
    assert "authenticator of olga" in owner.get(path).content.decode()
    owner.post(path)
    assert list(Authenticator.objects.values_list("user", flat=True)) == [boss.pk]
    assert owner.post(f"{BASE}/{boss.pk}/reset-second-factor/").status_code == 403
    assert Authenticator.objects.filter(user=boss).exists()
    assert owner.get(f"{BASE}/999999/reset-second-factor/").status_code == 404


def test_groups(sign_in: SignIn) -> None:
    Group.objects.create(name="night shift")
    page = text(sign_in(Role.OWNER), "groups/")
    names = ("night shift", "operator", "viewer")
    places = [page.index(f'data-label="Group">{name}<') for name in names]
    assert places == sorted(places)
    assert page.count("a role; its permissions are fixed") == 3


def test_a_token_is_shown_once(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    assert "No API tokens" in text(owner, "tokens/")
    form = {"label": "grafana", "role": "viewer", "days": "7"}
    answer = owner.post(f"{BASE}/tokens/create/", form)
    assert answer.status_code == 200 and "no-store" in answer["Cache-Control"]
    found = TEXT.search(answer.content.decode())
    assert found is not None
    actor = tokens.authenticate(found.group(), "::1")
    assert actor is not None and actor.permissions == matrix.permissions_of(Role.VIEWER)
    token = ApiToken.objects.get()
    assert abs(token.expires - timezone.now() - timedelta(days=7)) < timedelta(minutes=1)
    listed = text(owner, "tokens/")
    assert str(token) in listed and found.group() not in listed


def test_a_token_of_chosen_permissions(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    chosen = ["relay_ops.view_queue", "relay_ops.view_worker"]
    form = {"label": "top", "role": "", "permissions": chosen, "days": "1"}
    assert TEXT.search(owner.post(f"{BASE}/tokens/create/", form).content.decode())
    assert ApiToken.objects.get().permissions == sorted(chosen)
    for change, wrong in (
        ({"permissions": []}, "choose a role, or permissions"),
        ({"label": " "}, "This field is required"),
        ({"days": "0"}, "greater than or equal to 1"),
        ({"permissions": ["auth.fly"]}, "not one of the available choices"),
    ):
        answer = owner.post(f"{BASE}/tokens/create/", {**form, **change}).content.decode()
        assert wrong in answer and not TEXT.search(answer)
    assert ApiToken.objects.count() == 1
    assert "2 permissions" in text(owner, "tokens/?state=live")


def test_revoking_a_token(sign_in: SignIn) -> None:
    owner = sign_in(Role.OWNER)
    User.objects.create_superuser("olga")
    made = services.create_token("olga", "ci <b>", role="viewer", actor=CLI)
    path = f"{BASE}/tokens/{made.token}/revoke/"
    asked = owner.get(path).content.decode()
    assert str(made.token) in asked and "ci &lt;b&gt;" in asked and "refuses all further" in asked
    owner.post(path)
    assert tokens.authenticate(made.text, "::1") is None
    assert "revoked already" in owner.post(path, follow=True).content.decode()
    assert owner.get(f"{BASE}/tokens/rmb_0/revoke/").status_code == 404
    assert str(made.token) in text(owner, "tokens/?state=revoked&account=olga")
    assert "Nothing matches" in text(owner, "tokens/?state=live")
    assert AuditEntry.objects.latest("number").action == "token.revoke"


@pytest.mark.parametrize("role", list(Role))
def test_ones_own_account(sign_in: SignIn, role: Role) -> None:
    client = sign_in(role)
    page = text(client, "own/")
    assert f"a {role}" in page and "/admin/account/second-factor/" in page
    assert "Set up" in page and "Change it" not in page, "it has no password"
    guard(User.objects.get(username=f"a {role}"))
    assert "Manage" in text(client, "own/")
    assert ("API tokens" in page) is (role is Role.OWNER)
    assert 'href="/console/access/own/"' in client.get("/console/").content.decode()


def test_many_accounts_cost_few_queries(
    sign_in: SignIn, settings: Any, django_assert_max_num_queries: Any
) -> None:
    settings.RMB = dataclasses.replace(
        settings.RMB, access=dataclasses.replace(settings.RMB.access, require_totp=("operator",))
    )
    operators = Group.objects.get(name=Role.OPERATOR)
    for number in range(30):
        User.objects.create_user(f"operator {number}", is_staff=True).groups.add(operators)
    client = sign_in(Role.OWNER)
    guard(User.objects.get(username="a owner"))
    with django_assert_max_num_queries(18):
        page = text(client, "")
    assert page.count("the account must set up a second factor first") == 30
    with django_assert_max_num_queries(15):
        text(client, "groups/")
