"""API tokens: shown once, never with more rights than their account and maker, and expiring."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from relay.access import matrix, services, tokens
from relay.access.actor import MAX_NAME_CHARS, Actor, Face
from relay.access.errors import Conflict, Denied, Invalid, NotFound
from relay.access.models import ApiToken
from relay.audit import listing
from relay.audit.models import AuditEntry

pytestmark = pytest.mark.django_db

CLI = Actor("root", Face.CLI, "host", None)


@pytest.fixture
def olga() -> User:
    """Make an operator."""
    user = User.objects.create_user("olga", is_staff=True)
    user.groups.add(Group.objects.get(name="operator"))
    return user


def make(**values: Any) -> services.NewToken:
    return services.create_token("olga", "a label", **{"role": "viewer", "actor": CLI, **values})


def test_a_token_is_recognised(olga: User) -> None:
    made = make(role="operator")
    assert re.fullmatch(r"rmb_[0-9a-f]{16}_[\w-]{43}", made.text)
    actor = tokens.authenticate(made.text, "192.0.2.1")
    assert actor is not None
    assert (actor.name, actor.face, actor.address) == (f"olga/{made.token}", "rest", "192.0.2.1")
    assert actor.permissions == matrix.permissions_of(matrix.Role.OPERATOR)


def test_the_longest_user_name() -> None:
    """Tokens of a long name act under a name that fits every column, and belong to the account."""
    long, other = "o" * 150, "o" * 149 + "a"
    for name in (long, other):
        User.objects.create_superuser(name)
    made = services.create_token(long, "a label", role="owner", days=7, actor=CLI)
    actor = tokens.authenticate(made.text, "")
    assert actor is not None and actor.account == long
    assert len(actor.name) == MAX_NAME_CHARS and actor.name.endswith(f"…/{made.token}")
    again = services.create_token(long, "by it", role="owner", days=90, actor=actor)
    again.token.full_clean()
    assert again.token.created_by == actor.name
    assert again.token.expires == made.token.expires, "never after the one that made it"
    with pytest.raises(Invalid, match="your own account"):
        services.create_token(other, "not mine", role="owner", actor=actor)
    entry = AuditEntry.objects.latest("number")
    assert entry.actor == actor.name and list(listing.search(actor=long)) == [entry]


def test_the_secret_is_stored_nowhere(olga: User) -> None:
    made = make()
    secret = made.text.split("_", 2)[2]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f'SELECT * FROM "{table}"')
            assert secret not in str(cursor.fetchall()), table
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.target) == ("token.create", str(made.token))


@pytest.mark.parametrize(
    "text",
    ["", "x", "rmb_", "rmb_0123456789abcdef", f"rmb_{'0' * 16}_{'A' * 43}", "rmb_é", "a" * 10_000],
)
def test_what_is_no_token(olga: User, text: str) -> None:
    make()
    assert tokens.authenticate(text, "") is None


def test_a_wrong_secret(olga: User) -> None:
    made = make()
    wrong = made.text[:-1] + ("A" if made.text[-1] != "A" else "B")
    assert tokens.authenticate(wrong, "") is None
    assert tokens.authenticate(made.text + "\n", "") is None


def test_tokens_that_are_over(olga: User) -> None:
    expired, revoked, orphan = make(), make(), make()
    ApiToken.objects.filter(pk=expired.token.pk).update(expires=timezone.now())
    services.revoke_token(str(revoked.token), actor=CLI)
    assert tokens.authenticate(expired.text, "") is None
    assert tokens.authenticate(revoked.text, "") is None
    assert tokens.authenticate(orphan.text, "") is not None
    User.objects.filter(pk=olga.pk).update(is_active=False)
    assert tokens.authenticate(orphan.text, "") is None


def test_a_token_outlives_none_that_made_it(olga: User) -> None:
    olga.groups.set([Group.objects.get(name="owner")])
    short = make(role="owner", days=1)
    actor = tokens.authenticate(short.text, "")
    assert actor is not None
    made = make(role="owner", days=3650, actor=actor)
    assert made.token.expires == short.token.expires
    assert make(days=2).token.expires > short.token.expires


def test_a_token_loses_what_its_account_loses(olga: User) -> None:
    made = make(permissions=["relay_sessions.kick_session", "relay_sessions.view_session"], role="")
    assert tokens.permissions_of(made.token) == frozenset(made.token.permissions)
    olga.groups.set([Group.objects.get(name="viewer")])
    actor = tokens.authenticate(made.text, "")
    assert actor is not None and actor.permissions == {"relay_sessions.view_session"}
    olga.groups.clear()
    actor = tokens.authenticate(made.text, "")
    assert actor is not None and actor.permissions == frozenset()


def test_a_superusers_token_has_what_it_was_given(olga: User) -> None:
    User.objects.filter(pk=olga.pk).update(is_superuser=True)
    actor = tokens.authenticate(make(role="owner").text, "")
    assert actor is not None and actor.permissions == matrix.all_permissions()


def test_use_is_noted_once_a_minute(olga: User) -> None:
    made = make()
    tokens.authenticate(made.text, "192.0.2.1")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        tokens.authenticate(made.text, "192.0.2.2")
    assert not [each for each in queries if each["sql"].startswith("UPDATE")]
    assert len(queries) <= 3
    token = ApiToken.objects.get()
    assert token.last_address == "192.0.2.1" and token.last_used is not None
    ApiToken.objects.update(last_used=timezone.now() - timedelta(seconds=61))
    tokens.authenticate(made.text, "192.0.2.2")
    assert ApiToken.objects.get().last_address == "192.0.2.2"


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"role": "owner"}, "role"),
        ({"role": ""}, "role"),
        ({"role": "king"}, "role"),
        ({"role": "viewer", "permissions": ["relay_sessions.view_session"]}, "role"),
        ({"role": "", "permissions": ["auth.view_user"]}, "permissions"),
        ({"role": "", "permissions": ["relay.fly"]}, "permissions"),
        ({"days": 0}, "days"),
        ({"days": 4000}, "days"),
    ],
)
def test_refusals(olga: User, values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        make(**values)
    assert set(refused.value.fields) == {field}
    assert not ApiToken.objects.exists() and not AuditEntry.objects.exists()


@pytest.mark.parametrize("label", ["", " ", "x" * 81, "a\nb", "\0"])
def test_labels(olga: User, label: str) -> None:
    with pytest.raises(Invalid, match="label"):
        services.create_token("olga", label, role="viewer", actor=CLI)


def test_nobody_gives_more_than_he_has(olga: User) -> None:
    User.objects.filter(pk=olga.pk).update(is_superuser=True)
    given = frozenset({"relay_access.add_apitoken", "relay_sessions.view_session"})
    actor = Actor("olga/rmb_1", Face.REST, "", given, "olga")
    with pytest.raises(Invalid, match="do not have"):
        make(actor=actor, role="viewer")
    made = make(actor=actor, role="", permissions=["relay_sessions.view_session"])
    assert made.token.created_by == "olga/rmb_1"
    with pytest.raises(Invalid, match="own account"):
        make(actor=Actor("otto", Face.ADMIN, "", None))
    with pytest.raises(Denied):
        make(actor=Actor("olga", Face.REST, "", frozenset()))


def test_revoking(olga: User) -> None:
    made = make()
    with pytest.raises(NotFound):
        services.revoke_token("rmb_0", actor=CLI)
    services.revoke_token(made.token.public_id, actor=CLI)
    with pytest.raises(Conflict):
        services.revoke_token(made.token.public_id, actor=CLI)
    assert [entry.action for entry in AuditEntry.objects.all()] == ["token.revoke", "token.create"]


def test_an_account_has_a_bounded_number(olga: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_TOKENS", 1)
    made = make()
    with pytest.raises(Conflict):
        make()
    services.revoke_token(made.token.public_id, actor=CLI)
    make()


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("rmb_token", *arguments, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_the_command(olga: User) -> None:
    text = run("create", "--account", "olga", "--label", "grafana", "--role", "viewer").strip()
    assert tokens.authenticate(text, "::1") is not None
    name = text[:20]
    (row,) = json.loads(run("list", "--json"))
    assert (row["id"], row["state"], row["label"]) == (name, "live", "grafana")
    assert text not in run("list") and name in run("list")
    assert run("revoke", name) == f"{name} revoked\n"
    assert run("list") == "" and "revoked" in run("list", "--all")
    made = run("create", "--account", "olga", "--label", "ci", "--role", "viewer", "--json")
    document = json.loads(run("revoke", json.loads(made)["id"], "--json"))
    assert document["state"] == "revoked" and document["label"] == "ci"
    for wrong in (("revoke", name), ("create", "--account", "nobody", "--label", "x")):
        with pytest.raises(CommandError):
            run(*wrong)
