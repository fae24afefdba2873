"""Pages of API tokens: create one for the own account, shown once, list and revoke them."""

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
    Column("id", "Token", Cell.CODE, hint="public part of the token"),
    Column("label", "For"),
    Column("account", "Account", hint="account the token acts for"),
    Column("may", "May"),
    Column("state", "State", Cell.STATE),
    Column("expires", "Expires", Cell.MOMENT, order="expires"),
    Column("last_used", "Last used", Cell.MOMENT),
    Column("last_address", "From", Cell.CODE, optional=True, hint="address of the last use"),
    Column("created", "Made", Cell.MOMENT, order="created"),
    Column("created_by", "Created by", optional=True),
)
STATES: Final = {
    "live": State("live", Tone.GOOD),
    "expired": State("expired", Tone.IDLE),
    "revoked": State("revoked", Tone.IDLE),
}


class TokenForm(forms.Form):
    """The details of a new token."""

    label = forms.CharField(
        label="Purpose", max_length=MAX_LABEL_CHARS, help_text="Such as the name of a program."
    )
    role = forms.ChoiceField(
        label="Role",
        required=False,
        initial=matrix.Role.VIEWER.value,
        choices=[
            *((role.value, role.value) for role in matrix.Role),
            ("", "only the permissions chosen below"),
        ],
        help_text="A token never has more permissions than your account.",
    )
    permissions = PermissionsField(
        label="Permissions", help_text="Instead of a role; select several with Ctrl."
    )
    days = forms.IntegerField(
        label="Days until it expires",
        initial=services.DEFAULT_DAYS,
        min_value=1,
        max_value=services.MAX_DAYS,
    )

    def __init__(self, data: Any, actor: Actor) -> None:
        super().__init__(data)
        offer_permissions(self, actor)


@page("token.view")
def access_tokens(request: HttpRequest) -> HttpResponseBase:
    """List all tokens, without their text."""
    revocable = may(request, "token.revoke")

    def fetch(ask: Ask) -> Page[Row]:
        rows = services.search_tokens(account=ask.filters["account"], state=ask.filters["state"])
        orders = {"created": "created", "expires": "expires"}
        found = ask.page(rows, orders)
        return Page([_row(each, revocable) for each in found.items], found.next)

    table = Table(
        request, "tokens", COLUMNS, fetch, order="-created",
        filters=(
            Filter("account", "Account", hint="name of the account"),
            Filter("state", "State", [(name, name) for name in STATES]),
        ),
        empty="No API tokens.",
    )  # fmt: skip
    make = Action("Create a token", reverse("console:access_token_create"))
    context = {
        "tabs": access_tabs(request),
        "actions": [make] if may(request, "token.create") else [],
    }
    return respond(request, table, "relay_dashboard/table_page.html", "Access", context)


@page("token.create")
def create(request: HttpRequest) -> HttpResponseBase:
    """Create a token; only the response to the form ever shows its text."""
    form = TokenForm(posted(request), faces.operator(request))

    def perform(actor: Actor) -> HttpResponseBase:
        made = services.create_token(actor.account, **form.cleaned_data, actor=actor)
        return _made(request, made)

    question = Question(
        "Create an API token",
        "Make",
        (
            "A program that has the token acts as your account, with the permissions you "
            "choose. The token is shown once."
        ),
    )
    return act(request, question, perform, reverse("console:access_tokens"), form)


@page("token.revoke")
def revoke(request: HttpRequest, token: str) -> HttpResponseBase:
    """Revoke a token."""
    found = services.search_tokens().filter(public_id=token.removeprefix(tokens.PREFIX)).first()
    if found is None:
        raise NotFound("there is no such token")

    def perform(actor: Actor) -> str:
        services.revoke_token(token, actor=actor)
        return f"{found} ({found.label}) is revoked"

    question = Question(
        f"Revoke the token {found}",
        "Revoke",
        f"Purpose: {found.label}; account: {found.account}. The site refuses all further "
        "requests with the token.",
        loses=("the token; the program then needs a new one",),
        danger=True,
    )
    return act(request, question, perform, reverse("console:access_tokens"))


def _made(request: HttpRequest, made: services.NewToken) -> HttpResponseBase:
    """Return the one page with the text: a message would be stored in a session or a cookie."""
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
