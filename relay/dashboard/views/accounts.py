"""Pages of one account: its details, its sessions, and all actions of an owner on it."""

from __future__ import annotations

import secrets
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access import accounts, faces, groups, matrix
from relay.access.actor import Actor
from relay.access.sign_in import open_sessions
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.pages import may, page, render
from relay.dashboard.tables import Action, Ask, Cell, Column, Row, Table, respond_all
from relay.dashboard.views import access
from relay.ops.accounts import PASSWORD_BYTES
from relay.ops.paging import Page

SUPERUSER: Final = "superuser"
SESSION_COLUMNS: Final = (
    Column("began", "Signed in", Cell.MOMENT),
    Column("address", "From", Cell.CODE),
    Column("methods", "With"),
    Column("ends", "Ends", Cell.MOMENT, hint="access.session_hours after the sign-in"),
    Column("own", "This browser"),
)


class AccountForm(forms.Form):
    """The details of an account that an owner enters."""

    username = forms.CharField(
        label="Account",
        max_length=150,
        validators=[User.username_validator],
        help_text="Name for signing in: letters, digits and @ . + - _",
    )
    first_name = forms.CharField(max_length=150, required=False)
    last_name = forms.CharField(max_length=150, required=False)
    email = forms.EmailField(label="E-mail", max_length=254, required=False)
    role = forms.ChoiceField(required=False, initial=matrix.Role.VIEWER.value)
    groups = forms.MultipleChoiceField(
        label="Groups",
        required=False,
        help_text="Groups that an owner added. Select several with Ctrl.",
    )
    password = forms.ChoiceField(
        choices=[
            ("one-time", "a one-time password, shown once"),
            ("", "none: the account can only sign in with OpenID Connect"),
        ],
        required=False,
        initial="one-time",
        help_text="The account must replace a one-time password at its first sign-in.",
    )

    def __init__(self, data: Any, actor: Actor, user: User | None = None) -> None:
        super().__init__(data, initial=_initial(user) if user else None)
        fields: dict[str, Any] = self.fields
        fields["role"].choices = _roles(actor)
        own = Group.objects.exclude(name__in=groups.ROLES).order_by("name")
        fields["groups"].choices = [(group.name, group.name) for group in own]
        if not fields["groups"].choices:
            del fields["groups"]
        if user is not None:
            del fields["password"]

    @property
    def values(self) -> dict[str, Any]:
        """The valid form as arguments of the services."""
        given = self.cleaned_data
        role = given["role"]
        return {
            **{name: given[name] for name in ("username", "first_name", "last_name", "email")},
            "is_staff": True,
            "is_superuser": role == SUPERUSER,
            "groups": [*given.get("groups", ()), *([role] if role in groups.ROLES else ())],
        }


@page("account.view")
def account(request: HttpRequest, account_id: int) -> HttpResponseBase:
    """Show an account."""
    user = accounts.get_account(account_id)
    key = request.session.session_key

    def fetch(ask: Ask) -> Page[Row]:
        found = open_sessions.of_account(user)
        return Page([_session(each, key) for each in found[: ask.limit]], "")

    table = Table(
        request, "account-sessions", SESSION_COLUMNS, fetch, title="Sessions", short=50,
        empty="No browser is signed in to this account.",
    )  # fmt: skip
    guarded = user.pk in accounts.with_second_factor([user.pk])
    context = {
        "tabs": access.access_tabs(request, "access"),
        "account": user,
        "use": getattr(user, "use", None),
        "state": access.state_of(user),
        "role": access.role_of(user),
        "own": user.user_permissions.count(),
        "password": access.password_of(user),
        "second_factor": access.factor_of(user, guarded),
        "audit_url": may(request, "audit.view")
        and f"{reverse('console:audit')}?{urlencode({'target': user.username})}",
        "actions": _actions(request, user, guarded),
    }
    return respond_all(request, [table], "relay_dashboard/account.html", f"Account {user}", context)


@page("account.add")
def add(request: HttpRequest) -> HttpResponseBase:
    """Add an account, which can sign in at once."""
    form = AccountForm(posted(request), faces.operator(request))

    def perform(actor: Actor) -> str | HttpResponseBase:
        password = _new_password() if form.cleaned_data["password"] else None
        made = accounts.create_account(
            password=password, one_time=password is not None, actor=actor, **form.values
        )
        return _shown_once(request, made, password) if password else f"{made} is added"

    question = Question(
        "Add an account",
        "Add",
        "The account can sign in at once, with the permissions of its role.",
    )
    return act(request, question, perform, reverse("console:access"), form)


@page("account.change")
def change(request: HttpRequest, account_id: int) -> HttpResponseBase:
    """Change the details and permissions of an account."""
    user = accounts.get_account(account_id)
    form = AccountForm(posted(request), faces.operator(request), user)

    def perform(actor: Actor) -> str:
        accounts.change_account(account_id, actor=actor, **form.values)
        return f"{user} is changed"

    question = Question(
        f"Change the account {user}",
        "Change",
        "The role applies from the account's next request, also to its API tokens.",
    )
    return act(request, question, perform, _url("access_account", user), form)


@page("account.change")
def disable(request: HttpRequest, account_id: int) -> HttpResponseBase:
    """Prevent an account from signing in until it is enabled again."""
    user = accounts.get_account(account_id)

    def perform(actor: Actor) -> str:
        accounts.change_account(account_id, is_active=False, actor=actor)
        return f"{user} is disabled"

    question = Question(
        f"Disable the account {user}",
        "Disable",
        (
            "The account cannot sign in, its sessions end, and its API tokens are refused, "
            "until an owner enables it again."
        ),
        danger=True,
    )
    return act(request, question, perform, _url("access_account", user))


@page("account.change")
def enable(request: HttpRequest, account_id: int) -> HttpResponseBase:
    """Allow an account to sign in again."""
    user = accounts.get_account(account_id)

    def perform(actor: Actor) -> str:
        accounts.change_account(account_id, is_active=True, is_staff=True, actor=actor)
        return f"{user} can sign in"

    question = Question(
        f"Enable the account {user}",
        "Enable",
        "The account can sign in, and its API tokens work again.",
    )
    return act(request, question, perform, _url("access_account", user))


@page("account.change")
def new_password(request: HttpRequest, account_id: int) -> HttpResponseBase:
    """Give an account a one-time password."""
    user = accounts.get_account(account_id)

    def perform(actor: Actor) -> HttpResponseBase:
        password = _new_password()
        accounts.set_password(account_id, password, one_time=True, actor=actor)
        return _shown_once(request, user, password)

    question = Question(
        f"Give {user} a one-time password",
        "Generate",
        "The password is shown once. The account must replace it at the next sign-in.",
        loses=(f"the present password of {user}, and its sessions",),
        danger=True,
    )
    return act(request, question, perform, _url("access_account", user))


@page("account.end_sessions")
def end_sessions(request: HttpRequest, account_id: int) -> HttpResponseBase:
    """Sign an account out everywhere."""
    user = accounts.get_account(account_id)

    def perform(actor: Actor) -> str:
        ended = accounts.end_sessions(account_id, actor=actor)
        return f"{ended} session{'' if ended == 1 else 's'} of {user} ended"

    question = Question(
        f"End all sessions of {user}",
        "End",
        "All browsers must sign in to the account again. API tokens stay valid.",
        danger=True,
    )
    return act(request, question, perform, _url("access_account", user))


@page("account.delete")
def delete(request: HttpRequest, account_id: int) -> HttpResponseBase:
    """Delete an account."""
    user = accounts.get_account(account_id)

    def perform(actor: Actor) -> str:
        accounts.delete_account(account_id, actor=actor)
        return f"{user} is deleted"

    question = Question(
        f"Delete the account {user}",
        "Delete",
        (
            "The audit log keeps the account's entries. To refuse sign-ins for a while, "
            "disable the account instead."
        ),
        loses=(f"the account {user}, its API tokens and its second factor",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:access"))


def _actions(request: HttpRequest, user: User, guarded: bool) -> list[Action]:
    if not accounts.within(accounts.standing(user), actor=faces.operator(request)):
        return []
    enters = user.is_active and user.is_staff
    switch = Action("Disable", _url("access_disable", user), danger=True)
    if not enters:
        switch = Action("Enable", _url("access_enable", user))
    offered = (
        ("account.change", True, Action("Change", _url("access_change", user))),
        ("account.change", True, Action("New password", _url("access_password", user))),
        (
            "account.reset_second_factor",
            guarded,
            Action("Reset second factor", _url("access_reset_second_factor", user), danger=True),
        ),
        (
            "account.end_sessions",
            True,
            Action("End sessions", _url("access_end_sessions", user), danger=True),
        ),
        ("account.change", True, switch),
        ("account.delete", True, Action("Delete", _url("access_delete", user), danger=True)),
    )
    return [action for needed, fits, action in offered if fits and may(request, needed)]


def _session(found: open_sessions.OpenSession, key: str | None) -> Row:
    return Row(
        {
            "began": found.began,
            "address": found.address,
            "methods": found.methods,
            "ends": found.ends,
            "own": "yes" if found.key == key else "",
        }
    )


def _roles(actor: Actor) -> list[tuple[str, str]]:
    """Return the roles that the actor may give."""
    given = [role.value for role in matrix.Role if all(map(actor.may, matrix.permissions_of(role)))]
    choices = [(name, name) for name in given]
    if actor.permissions is None:
        choices.append((SUPERUSER, "superuser: everything"))
    return [*choices, ("", "none")]


def _initial(user: User) -> dict[str, Any]:
    names = {group.name for group in user.groups.all()}
    held = [role.value for role in matrix.Role if role.value in names]
    role = SUPERUSER if user.is_superuser else held[-1] if held else ""
    plain = {name: getattr(user, name) for name in ("username", "first_name", "last_name", "email")}
    return {**plain, "role": role, "groups": sorted(names - groups.ROLES)}


def _new_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _shown_once(request: HttpRequest, user: User, password: str) -> HttpResponseBase:
    """Return the one page with the password: a message would be stored in a session or a cookie."""
    site = request.build_absolute_uri("/")
    context = {
        "tabs": access.access_tabs(request, "access"),
        "owner": user.username,
        "what": "the one-time password",
        "secret": password,
        "note": f"{user} signs in with it at {site} and must then replace it.",
        "back": _url("access_account", user),
    }
    return render(request, "relay_dashboard/secret_made.html", f"Account {user}", context)


def _url(name: str, user: User) -> str:
    return reverse(f"console:{name}", args=[user.pk])
