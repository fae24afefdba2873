"""Who may use the site: accounts and groups, and what belongs to whoever looks."""

from __future__ import annotations

from typing import Any, Final

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db.models import Count
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access import accounts, faces, groups, matrix, tokens
from relay.access.actor import Actor
from relay.access.sign_in.required import roles_of
from relay.dashboard.acts import Question, act
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page, render
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
    Column("state", "State", Cell.STATE),
    Column("role", "Groups", hint="what it may, beside permissions of its own"),
    Column("second_factor", "Second factor", Cell.STATE),
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
ROLE: Final = State("role", Tone.INFO, "its permissions are those of the release")
OWN_GROUP: Final = State("own", Tone.IDLE, "made by an owner")


def access_tabs(request: HttpRequest, current: str = "") -> list[Tab]:
    """The tabs of all pages of access."""
    return tabs(request, TABS, current)


@page("account.view")
def access(request: HttpRequest) -> HttpResponseBase:
    """Who may sign in, as what, and how well guarded."""
    changeable = may(request, "account.change")

    def fetch(ask: Ask) -> Page[Row]:
        rows = User.objects.prefetch_related("groups", "user_permissions")
        if ask.filters["group"]:
            rows = rows.filter(groups__name=ask.filters["group"])
        if ask.filters["active"]:
            rows = rows.filter(is_active=ask.filters["active"] == "yes")
        if ask.filters["name"]:
            rows = rows.filter(username__icontains=ask.filters["name"])
        orders = {"username": "username", "made": "date_joined"}
        found = ask.page(rows, orders)
        guarded = accounts.with_second_factor([user.pk for user in found.items])
        shown = [_account(user, user.pk in guarded, changeable) for user in found.items]
        return Page(shown, found.next)

    names = Group.objects.order_by("name").values_list("name", flat=True)
    table = Table(
        request, "accounts", ACCOUNT_COLUMNS, fetch, order="username",
        filters=(
            Filter("name", "Account", hint="a part of its name"),
            Filter("group", "Group", [(name, name) for name in names]),
            Filter("active", "May sign in", (("yes", "yes"), ("no", "no"))),
        ),
    )  # fmt: skip
    add = Action("Add an account", reverse("admin:auth_user_add"), asks=False)
    context = {
        "tabs": access_tabs(request),
        "actions": [add] if may(request, "account.add") else [],
    }
    return respond(request, table, "relay_dashboard/table_page.html", "Access", context)


@page("account.reset_second_factor")
def reset_second_factor(request: HttpRequest, account_id: int) -> HttpResponseBase:
    """For those who lost theirs and their recovery codes."""
    user = accounts.get_account(account_id)

    def perform(actor: Actor) -> str:
        accounts.reset_second_factor(account_id, actor=actor)
        return f"{user}: the password is enough now"

    question = Question(
        f"Take the second factor of {user} away",
        "Take away",
        "Be sure that it is they who ask. Their password alone signs them in then.",
        loses=(f"the authenticator of {user} and all its recovery codes",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:access"))


@page("group.view")
def access_groups(request: HttpRequest) -> HttpResponseBase:
    """The roles, and groups of one's own."""

    def fetch(ask: Ask) -> Page[Row]:
        rows = Group.objects.annotate(
            members=Count("user", distinct=True), count=Count("permissions", distinct=True)
        )
        found = ask.page(rows, {"name": "name"})
        return Page([_group(each) for each in found.items], found.next)

    table = Table(request, "groups", GROUP_COLUMNS, fetch, order="name")
    add = Action("Add a group", reverse("admin:auth_group_add"), asks=False)
    context = {
        "tabs": access_tabs(request),
        "actions": [add] if may(request, "group.add") else [],
    }
    return respond(request, table, "relay_dashboard/table_page.html", "Access", context)


@page("worker.view")
def access_own(request: HttpRequest) -> HttpResponseBase:
    """One's own account: what it may, its password and its second factor."""
    user: Any = request.user
    permissions = sorted(tokens.permissions_of_account(user))
    context = {
        "tabs": access_tabs(request),
        "roles": "everything" if user.is_superuser else _group_names(user) or "no group",
        "permissions": permissions,
        "second_factor": _factor(user, user.pk in accounts.with_second_factor([user.pk])),
        "has_password": user.has_usable_password(),
        "address": faces.operator(request).address,
    }
    return render(request, "relay_dashboard/access_own.html", "Your account", context)


def _account(user: User, guarded: bool, changeable: bool) -> Row:
    state = State("may sign in", Tone.GOOD)
    if not user.is_active:
        state = State("off", Tone.IDLE, "deactivated: neither it nor its tokens may anything")
    elif not user.is_staff:
        state = State("no access", Tone.IDLE, "it may not use the site")
    own = len(user.user_permissions.all())
    values = {
        "username": user.username,
        "state": state,
        "role": "superuser: everything" if user.is_superuser else _group_names(user),
        "second_factor": _factor(user, guarded),
        "last_login": user.last_login,
        "email": user.email,
        "own": own,
        "date_joined": user.date_joined,
    }
    record = reverse("admin:auth_user_change", args=[user.pk])
    actions = []
    if changeable and guarded:
        url = reverse("console:access_reset_second_factor", args=[user.pk])
        actions.append(Action("Reset second factor", url, danger=True))
    if changeable:
        actions.append(Action("Change", record, asks=False))
    return Row(values, {"username": record}, actions)


def _group_names(user: User) -> str:
    return ", ".join(sorted(group.name for group in user.groups.all()))


def _factor(user: User, guarded: bool) -> State:
    if guarded:
        return State("on", Tone.GOOD)
    wanted = settings.RMB.access.require_totp
    if wanted and roles_of(user) & {matrix.Role(role) for role in wanted}:
        return State("demanded", Tone.WARNING, "it sees nothing else until it has one")
    return State("none", Tone.IDLE)


def _group(found: Any) -> Row:
    values = {
        "name": found.name,
        "kind": ROLE if groups.is_role(found) else OWN_GROUP,
        "members": found.members,
        "permissions": found.count,
    }
    return Row(values, {"name": reverse("admin:auth_group_change", args=[found.pk])})
