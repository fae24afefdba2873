"""API tokens: made for one's own account, shown once, revoked by a question."""

from __future__ import annotations

from typing import Any, Final

from django import forms
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access import faces, matrix, services, tokens
from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.access.models import MAX_LABEL_CHARS, ApiToken
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.pages import may, page, render
from relay.dashboard.permissions import PermissionsField, offer_permissions
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action, Ask, Cell, Column, Filter, Row, Table, respond
from relay.dashboard.views.access import access_tabs
from relay.ops.paging import Page

COLUMNS: Final = (
    Column("id", "Token", Cell.CODE, hint="the part that may be seen"),
    Column("label", "For"),
    Column("account", "Account", hint="it acts for, and never may more than"),
    Column("may", "May"),
    Column("state", "State", Cell.STATE),
    Column("expires", "Expires", Cell.MOMENT, order="expires"),
    Column("last_used", "Last used", Cell.MOMENT),
    Column("last_address", "From", Cell.CODE, optional=True, hint="at its last use"),
    Column("created", "Made", Cell.MOMENT, order="created"),
    Column("created_by", "Made by", optional=True),
)
STATES: Final = {
    "live": State("live", Tone.GOOD),
    "expired": State("expired", Tone.IDLE),
    "revoked": State("revoked", Tone.IDLE),
}


class TokenForm(forms.Form):
    """What is asked for a new token."""

    label = forms.CharField(
        label="What it is for", max_length=MAX_LABEL_CHARS, help_text="Such as the program's name."
    )
    role = forms.ChoiceField(
        label="May what this role may",
        required=False,
        initial=matrix.Role.VIEWER.value,
        choices=[*((role.value, role.value) for role in matrix.Role), ("", "only what is chosen")],
        help_text="Never more than your account may when it is used.",
    )
    permissions = PermissionsField(
        label="Or only this", help_text="Permissions in place of a role; several with Ctrl."
    )
    days = forms.IntegerField(
        label="Expires in days",
        initial=services.DEFAULT_DAYS,
        min_value=1,
        max_value=services.MAX_DAYS,
    )

    def __init__(self, data: Any, actor: Actor) -> None:
        super().__init__(data)
        offer_permissions(self, actor)


@page("token.view")
def access_tokens(request: HttpRequest) -> HttpResponseBase:
    """All tokens, without their text."""
    revocable = may(request, "token.revoke")

    def fetch(ask: Ask) -> Page[Row]:
        rows = services.search_tokens(account=ask.filters["account"], state=ask.filters["state"])
        orders = {"created": "created", "expires": "expires"}
        found = ask.page(rows, orders)
        return Page([_row(each, revocable) for each in found.items], found.next)

    table = Table(
        request, "tokens", COLUMNS, fetch, order="-created",
        filters=(
            Filter("account", "Account", hint="its name"),
            Filter("state", "State", [(name, name) for name in STATES]),
        ),
        empty="No token: no program signs in to this site.",
    )  # fmt: skip
    make = Action("Make a token", reverse("console:access_token_create"))
    context = {
        "tabs": access_tabs(request),
        "actions": [make] if may(request, "token.create") else [],
    }
    return respond(request, table, "relay_dashboard/table_page.html", "Access", context)


@page("token.create")
def create(request: HttpRequest) -> HttpResponseBase:
    """Ask what it is for; the answer to the form shows the token, and nothing else ever does."""
    form = TokenForm(posted(request), faces.operator(request))

    def perform(actor: Actor) -> HttpResponseBase:
        made = services.create_token(actor.account, **form.cleaned_data, actor=actor)
        return _made(request, made)

    question = Question(
        "Make an API token",
        "Make",
        "A program signs in with it as you, within what it is given. It is shown once.",
    )
    return act(request, question, perform, reverse("console:access_tokens"), form)


@page("token.revoke")
def revoke(request: HttpRequest, token: str) -> HttpResponseBase:
    """Let it be one no more."""
    found = services.search_tokens().filter(public_id=token.removeprefix(tokens.PREFIX)).first()
    if found is None:
        raise NotFound("there is no such token")

    def perform(actor: Actor) -> str:
        services.revoke_token(token, actor=actor)
        return f"{found} ({found.label}) is revoked"

    question = Question(
        f"Revoke the token {found}",
        "Revoke",
        f"It is for {found.label}, of {found.account}. Programs that use it are refused from their "
        "next request on.",
        loses=("the token: a new one has to be made, and given to the program",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:access_tokens"))


def _made(request: HttpRequest, made: services.NewToken) -> HttpResponseBase:
    """The one page with the text: a message would be stored in a session or a cookie."""
    context = {
        "tabs": access_tabs(request, "access_tokens"),
        "token": made.token,
        "text": made.text,
        "site": request.build_absolute_uri("/"),
    }
    return render(request, "relay_dashboard/token_made.html", "New API token", context)


def _row(found: ApiToken, revocable: bool) -> Row:
    state = services.state_of(found)
    count = len(found.permissions)
    values = {
        "id": str(found),
        "label": found.label,
        "account": found.account.get_username(),
        "may": found.role or f"{count} permission{'' if count == 1 else 's'}",
        "state": STATES[state],
        "expires": found.expires,
        "last_used": found.last_used,
        "last_address": found.last_address,
        "created": found.created,
        "created_by": found.created_by,
    }
    actions = []
    if revocable and state == "live":
        url = reverse("console:access_token_revoke", args=[str(found)])
        actions.append(Action("Revoke", url, danger=True))
    return Row(values, actions=actions)
