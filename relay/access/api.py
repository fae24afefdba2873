"""Access over REST: who one is, accounts and groups to read, and API tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from django.contrib.auth.models import Group, User
from django.utils import timezone
from ninja import Field, Query, Router, Schema

from relay.access import matrix, services
from relay.access.errors import NotFound
from relay.access.matrix import Role
from relay.access.models import MAX_LABEL_CHARS, ApiToken
from relay.rest.caller import Request
from relay.rest.operation import get, post
from relay.rest.paging import page
from relay.rest.schema import Body, Page, PageQuery, RowId, Whole

router = Router(tags=["access"])

TOKEN: Final = r"^(rmb_)?[0-9a-f]{16}$"
MAX_NAME_CHARS: Final = 150
MAX_PERMISSIONS: Final = 200

TokenId = Annotated[str, Field(pattern=TOKEN, description="`rmb_` and 16 hexadecimal digits.")]
Permission = Annotated[str, Field(min_length=1, max_length=100)]


class MeOut(Schema):
    """Who asks, and what they may."""

    name: str = Field(description="An account, or one token of it: `account/rmb_<id>`.")
    address: str
    permissions: list[str]


class AccountOut(Schema):
    """Somebody who can sign in."""

    id: int
    username: str
    email: str
    first_name: str
    last_name: str
    is_active: bool
    is_staff: bool = Field(description="May use the operator site.")
    is_superuser: bool = Field(description="May do everything.")
    groups: list[str]
    date_joined: datetime
    last_login: datetime | None


class AccountQuery(PageQuery):
    """Filters of the list."""

    active: Literal["true", "false"] | None = None
    group: str | None = Field(None, max_length=MAX_NAME_CHARS)
    order: Literal["id", "-id", "username", "-username"] = "id"


class GroupOut(Schema):
    """A group of accounts; viewer, operator and owner are the roles."""

    id: int
    name: str
    permissions: list[str]


class GroupQuery(PageQuery):
    """Order of the list."""

    order: Literal["id", "-id", "name", "-name"] = "id"


class TokenOut(Schema):
    """An API token; its text is shown once, when it is made."""

    id: str
    label: str
    account: str
    role: str | None
    permissions: list[str] = Field(description="What it may at most.")
    created: datetime
    expires: datetime
    last_used: datetime | None
    revoked: datetime | None
    last_address: str
    created_by: str
    state: str = Field(description="live, expired or revoked.")


class TokenMade(TokenOut):
    """A new token."""

    text: str = Field(description="What to send as `Authorization: Bearer <text>`; shown once.")


class TokenIn(Body):
    """A token for the account that asks: give a role, or permissions."""

    label: str = Field(min_length=1, max_length=MAX_LABEL_CHARS, description="What it is for.")
    role: Role | None = None
    permissions: list[Permission] = Field(default_factory=list, max_length=MAX_PERMISSIONS)
    days: Whole = Field(
        services.DEFAULT_DAYS,
        ge=1,
        le=services.MAX_DAYS,
        description="Until it expires; never after the token that asks.",
    )


class TokenQuery(PageQuery):
    """Filters of the list."""

    account: str | None = Field(None, max_length=MAX_NAME_CHARS)
    state: Literal["live", "expired", "revoked"] | None = None
    order: Literal["created", "-created", "expires", "-expires"] = "-created"


@get(router, "/me", action=None, answer=MeOut)
def get_me(request: Request) -> Any:
    """Who asks, and what they may."""
    actor = request.actor
    may = matrix.all_permissions() if actor.permissions is None else actor.permissions
    return MeOut(name=actor.name, address=actor.address, permissions=sorted(may))


@get(router, "/accounts", action="account.view", answer=Page[AccountOut])
def list_accounts(request: Request, query: Query[AccountQuery]) -> Any:
    """Accounts that can sign in."""
    rows = User.objects.prefetch_related("groups")
    if query.active is not None:
        rows = rows.filter(is_active=query.active == "true")
    if query.group is not None:
        rows = rows.filter(groups__name=query.group)
    return page(query, rows, {"id": "pk", "username": "username"}, show=_accounts)


@get(router, "/accounts/{account}", action="account.view", answer=AccountOut)
def get_account(request: Request, account: RowId) -> Any:
    """One account."""
    found = list(User.objects.prefetch_related("groups").filter(pk=account))
    if not found:
        raise NotFound(f"there is no account {account}")
    return _accounts(found)[0]


@get(router, "/groups", action="group.view", answer=Page[GroupOut])
def list_groups(request: Request, query: Query[GroupQuery]) -> Any:
    """Groups of accounts, and what they may."""
    rows = Group.objects.prefetch_related("permissions__content_type")
    return page(query, rows, {"id": "pk", "name": "name"}, show=_groups)


@get(router, "/tokens", action="token.view", answer=Page[TokenOut])
def list_tokens(request: Request, query: Query[TokenQuery]) -> Any:
    """API tokens, without their text."""
    rows = ApiToken.objects.select_related("account")
    if query.account is not None:
        rows = rows.filter(account__username=query.account)
    now = timezone.now()
    if query.state == "revoked":
        rows = rows.filter(revoked__isnull=False)
    elif query.state is not None:
        rows = rows.filter(revoked=None)
        live = query.state == "live"
        rows = rows.filter(expires__gt=now) if live else rows.filter(expires__lte=now)
    orders = {"created": "created", "expires": "expires"}
    return page(query, rows, orders, show=lambda found: map(services.shown, found))


@post(router, "/tokens", action="token.create", answer=TokenMade, status=201, secret=True)
def create_token(request: Request, body: TokenIn) -> Any:
    """Make a token for the account that asks.

    Its text is in this answer and nowhere else: a repeat with the same `Idempotency-Key` gets 409.
    """
    made = services.create_token(
        request.actor.account,
        body.label,
        role=body.role or "",
        permissions=body.permissions,
        days=body.days,
        actor=request.actor,
    )
    return {**services.shown(made.token), "text": made.text}


@get(router, "/tokens/{token}", action="token.view", answer=TokenOut)
def get_token(request: Request, token: TokenId) -> Any:
    """One API token, without its text."""
    name = token.removeprefix("rmb_")
    found = ApiToken.objects.select_related("account").filter(public_id=name).first()
    if found is None:
        raise NotFound("there is no such token")
    return services.shown(found)


@post(router, "/tokens/{token}/revoke", action="token.revoke", answer=TokenOut)
def revoke_token(request: Request, token: TokenId) -> Any:
    """Let a token be one no more, from its next request on."""
    return services.shown(services.revoke_token(token, actor=request.actor))


def _accounts(found: list[User]) -> list[AccountOut]:
    plain = ("id", "username", "email", "first_name", "last_name", "is_active", "is_staff")
    more = ("is_superuser", "date_joined", "last_login")
    return [
        AccountOut(
            **{name: getattr(user, name) for name in (*plain, *more)},
            groups=sorted(group.name for group in user.groups.all()),
        )
        for user in found
    ]


def _groups(found: list[Group]) -> list[GroupOut]:
    return [
        GroupOut(
            id=group.pk,
            name=group.name,
            permissions=sorted(
                f"{each.content_type.app_label}.{each.codename}" for each in group.permissions.all()
            ),
        )
        for group in found
    ]
