"""Pages of access to the site: accounts, groups, and the operator's own account."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db.models import Count
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access import accounts, faces, groups, matrix, tokens
from relay.access.actor import Actor
from relay.access.sign_in import open_sessions
from relay.access.sign_in.required import roles_of
from relay.access.sign_in.use import must_replace_password
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page, render
from relay.dashboard.permissions import PermissionsField, offer_permissions
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Filter, Row, Tab, Table, respond
from relay.dashboard.tabs import Entry, tabs
from relay.ops.paging import Page

TABS: Final = (
    Entry("Accounts", "access", "account.view"),
    Entry("Groups", "access_groups", "group.view"),
    Entry("API tokens", "access_tokens", "token.view"),
    Entry("Your account", "access_own", "worker.view"),
)
ACCOUNT_COLUMNS: Final = (
    Column("username", "Account", order="username"),
    Column("name", "Name"),
    Column("state", "State", Cell.STATE),
    Column("role", "Role", hint="role and groups of the account"),
    Column("password", "Password", Cell.STATE),
    Column("second_factor", "Second factor", Cell.STATE),
    Column("sessions", "Sessions", Kind.NUMBER, hint="browsers signed in to the account"),
    Column("last_seen", "Last seen", Cell.MOMENT, hint="time of the last page the account opened"),
    Column("last_login", "Last sign-in", Cell.MOMENT),
    Column("email", "E-mail", optional=True),
    Column("own", "Own permissions", Kind.NUMBER, optional=True),
    Column("date_joined", "Made", Cell.MOMENT, order="made", optional=True),
)
GROUP_COLUMNS: Final = (
    Column("name", "Group", order="name"),
    Column("kind", "Kind", Cell.STATE),
    Column("members", "Accounts", Kind.NUMBER),
    Column("permissions", "Permissions", Kind.NUMBER),
)
ROLE: Final = State("role", Tone.INFO, "a role; its permissions are fixed")
OWN_GROUP: Final = State("own", Tone.IDLE, "added by an owner")


def access_tabs(request: HttpRequest, current: str = "") -> list[Tab]:
    """Return the tabs of all pages of access."""
    return tabs(request, TABS, current)


@page("account.view")
def access(request: HttpRequest) -> HttpResponseBase:
    """List accounts with their roles, passwords and second factors."""
    changeable, actor = may(request, "account.change"), faces.operator(request)

    def fetch(ask: Ask) -> Page[Row]:
        rows = User.objects.select_related("use").prefetch_related(*accounts.STANDING)
        if ask.filters["group"]:
            rows = rows.filter(groups__name=ask.filters["group"])
        if ask.filters["active"]:
            rows = rows.filter(is_active=ask.filters["active"] == "yes")
        if ask.filters["name"]:
            rows = rows.filter(username__icontains=ask.filters["name"])
        orders = {"username": "username", "made": "date_joined"}
        found = ask.page(rows, orders)
        guarded = accounts.with_second_factor([user.pk for user in found.items])
        signed_in = open_sessions.count()
        shown = []
        for user in found.items:
            own = changeable and accounts.within(accounts.standing(user), actor=actor)
            shown.append(_account(user, user.pk in guarded, signed_in[user.pk], own))
        return Page(shown, found.next)

    names = Group.objects.order_by("name").values_list("name", flat=True)
    table = Table(
        request, "accounts", ACCOUNT_COLUMNS, fetch, order="username",
        filters=(
            Filter("name", "Account", hint="part of a name"),
            Filter("group", "Group", [(name, name) for name in names]),
            Filter("active", "May sign in", (("yes", "yes"), ("no", "no"))),
        ),
    )  # fmt: skip
    add = Action("Add an account", reverse("console:access_add"))
    context = {
        "tabs": access_tabs(request),
        "actions": [add] if may(request, "account.add") else [],
    }
    return respond(request, table, "relay_dashboard/table_page.html", "Access", context)


@page("account.reset_second_factor")
def reset_second_factor(request: HttpRequest, account_id: int) -> HttpResponseBase:
    """Reset a second factor, for accounts whose device and recovery codes are lost."""
    user = accounts.get_account(account_id)

    def perform(actor: Actor) -> str:
        accounts.reset_second_factor(account_id, actor=actor)
        return f"the second factor of {user} is reset"

    question = Question(
        f"Reset the second factor of {user}",
        "Reset",
        (
            "Make sure that the owner of the account asks for this. The password alone signs "
            "in afterwards."
        ),
        loses=(f"the authenticator of {user} and all its recovery codes",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:access"))


@page("group.view")
def access_groups(request: HttpRequest) -> HttpResponseBase:
    """List the roles, and the groups that owners added."""

    def fetch(ask: Ask) -> Page[Row]:
        rows = Group.objects.annotate(
            members=Count("user", distinct=True), count=Count("permissions", distinct=True)
        )
        found = ask.page(rows, {"name": "name"})
        return Page([_group(request, each) for each in found.items], found.next)

    table = Table(request, "groups", GROUP_COLUMNS, fetch, order="name")
    add = Action("Add a group", reverse("console:access_group_add"))
    context = {
        "tabs": access_tabs(request),
        "actions": [add] if may(request, "group.add") else [],
    }
    return respond(request, table, "relay_dashboard/table_page.html", "Access", context)


class GroupForm(forms.Form):
    """The details of a group that an owner enters."""

    name = forms.CharField(max_length=150)
    permissions = PermissionsField(help_text="Select several with Ctrl.")

    def __init__(self, data: Any, actor: Actor, initial: dict[str, Any] | None = None) -> None:
        super().__init__(data, initial=initial)
        offer_permissions(self, actor)


@page("group.add")
def add_group(request: HttpRequest) -> HttpResponseBase:
    """Add a group."""
    form = GroupForm(posted(request), faces.operator(request))

    def perform(actor: Actor) -> str:
        return f"The group {groups.create_group(**form.cleaned_data, actor=actor)} is added"

    question = Question(
        "Add a group",
        "Add",
        "Members have the permissions of the group in addition to those of their role.",
    )
    return act(request, question, perform, reverse("console:access_groups"), form)


@page("group.change")
def change_group(request: HttpRequest, group_id: int) -> HttpResponseBase:
    """Change a group that an owner added."""
    group = groups.get_group(group_id)
    form = GroupForm(posted(request), faces.operator(request), groups.told(group))

    def perform(actor: Actor) -> str:
        groups.change_group(group_id, **form.cleaned_data, actor=actor)
        return f"The group {form.cleaned_data['name']} is changed"

    question = Question(
        f"Change the group {group}", "Change", "The change applies from each member's next request."
    )
    return act(request, question, perform, reverse("console:access_groups"), form)


@page("group.delete")
def delete_group(request: HttpRequest, group_id: int) -> HttpResponseBase:
    """Delete a group that an owner added."""
    group = groups.get_group(group_id)

    def perform(actor: Actor) -> str:
        groups.delete_group(group_id, actor=actor)
        return f"The group {group} is deleted"

    question = Question(
        f"Delete the group {group}",
        "Delete",
        loses=(f"the permissions that {group.user_set.count()} accounts have from the group",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:access_groups"))


@page("worker.view")
def access_own(request: HttpRequest) -> HttpResponseBase:
    """Show the operator's own account: permissions, password and second factor."""
    user: Any = request.user
    permissions = sorted(tokens.permissions_of_account(user))
    context = {
        "tabs": access_tabs(request),
        "roles": role_of(user),
        "permissions": permissions,
        "second_factor": factor_of(user, user.pk in accounts.with_second_factor([user.pk])),
        "has_password": user.has_usable_password(),
        "address": faces.operator(request).address,
    }
    return render(request, "relay_dashboard/access_own.html", "Your account", context)


def state_of(user: User) -> State:
    """Return whether an account can sign in."""
    if not user.is_active:
        return State("disabled", Tone.IDLE, "the account and its API tokens have no permissions")
    if not user.is_staff:
        return State("no access", Tone.IDLE, "the account may not use the site; enable it")
    return State("enabled", Tone.GOOD)


def role_of(user: User) -> str:
    """Return the groups of an account as text; superusers need none."""
    return "superuser: everything" if user.is_superuser else _group_names(user) or "none"


def password_of(user: User) -> State:
    """Return what kind of password an account has."""
    if not user.has_usable_password():
        return State(
            "none", Tone.IDLE, "no password: the account can only sign in with OpenID Connect"
        )
    if must_replace_password(user):
        return State("one-time", Tone.WARNING, "the account replaces it when it signs in")
    return State("set", Tone.GOOD)


def factor_of(user: User, guarded: bool) -> State:
    """Return whether an account has a second factor, or must set one up."""
    if guarded:
        return State("on", Tone.GOOD)
    wanted = settings.RMB.access.require_totp
    if wanted and roles_of(user) & {matrix.Role(role) for role in wanted}:
        return State("demanded", Tone.WARNING, "the account must set up a second factor first")
    return State("none", Tone.IDLE)


def _account(user: User, guarded: bool, signed_in: int, changeable: bool) -> Row:
    use = getattr(user, "use", None)
    values = {
        "username": user.username,
        "name": user.get_full_name(),
        "state": state_of(user),
        "role": role_of(user),
        "password": password_of(user),
        "second_factor": factor_of(user, guarded),
        "sessions": signed_in,
        "last_seen": use and use.last_seen,
        "last_login": user.last_login,
        "email": user.email,
        "own": len(user.user_permissions.all()),
        "date_joined": user.date_joined,
    }
    actions = []
    if changeable:
        enters = user.is_active and user.is_staff
        switch = "disable" if enters else "enable"
        url = reverse(f"console:access_{switch}", args=[user.pk])
        change = Action("Change", reverse("console:access_change", args=[user.pk]))
        actions = [change, Action(switch.capitalize(), url, danger=enters)]
    link = reverse("console:access_account", args=[user.pk])
    return Row(values, {"username": link}, actions)


def _group_names(user: User) -> str:
    return ", ".join(sorted(group.name for group in user.groups.all()))


def _group(request: HttpRequest, found: Any) -> Row:
    values = {
        "name": found.name,
        "kind": ROLE if groups.is_role(found) else OWN_GROUP,
        "members": found.members,
        "permissions": found.count,
    }
    actions = []
    if not groups.is_role(found) and may(request, "group.change"):
        url = reverse("console:access_group_change", args=[found.pk])
        actions.append(Action("Change", url))
    if not groups.is_role(found) and may(request, "group.delete"):
        url = reverse("console:access_group_delete", args=[found.pk])
        actions.append(Action("Delete", url, danger=True))
    members = f"{reverse('console:access')}?{urlencode({'group': found.name})}"
    return Row(values, {"members": members}, actions)
