"""Access over REST: the caller's own account, and API tokens. For accounts see `accounts_api`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from ninja import Field, Query, Router, Schema

from relay.access import matrix, services
from relay.access.errors import NotFound
from relay.access.matrix import Role
from relay.access.models import MAX_LABEL_CHARS, ApiToken
from relay.rest.caller import Request
from relay.rest.operation import get, post
from relay.rest.paging import page
from relay.rest.schema import Body, Page, PageQuery, Whole

router = Router(tags=["access"])

TOKEN: Final = r"^(rmb_)?[0-9a-f]{16}$"
MAX_NAME_CHARS: Final = 150
MAX_PERMISSIONS: Final = 200

TokenId = Annotated[str, Field(pattern=TOKEN, description="`rmb_` and 16 hexadecimal digits.")]
Permission = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100,
        json_schema_extra={"enum": sorted(matrix.all_permissions())},
    ),
]
"""Name of a permission; the services check that it is in the matrix."""


class MeOut(Schema):
    """Account of a request, and its permissions."""

    name: str = Field(description="An account, or one token of it: `account/rmb_<id>`.")
    address: str
    permissions: list[str]


class TokenOut(Schema):
    """An API token; its text is shown only once, when it is added."""

    id: str
    label: str
    account: str
    role: str | None
    permissions: list[str] = Field(
        description="Permissions of the token; the account's own permissions limit them."
    )
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

    label: str = Field(
        min_length=1, max_length=MAX_LABEL_CHARS, description="Purpose of the token."
    )
    role: Role | None = None
    permissions: list[Permission] = Field(default_factory=list, max_length=MAX_PERMISSIONS)
    days: Whole = Field(
        services.DEFAULT_DAYS,
        ge=1,
        le=services.MAX_DAYS,
        description="Time until the token expires; not after the token of the request.",
    )


class TokenQuery(PageQuery):
    """Filters of the list."""

    account: str | None = Field(None, max_length=MAX_NAME_CHARS)
    state: Literal["live", "expired", "revoked"] | None = None
    order: Literal["created", "-created", "expires", "-expires"] = "-created"


@get(router, "/me", action=None, answer=MeOut)
def get_me(request: Request) -> Any:
    """Get the account of the request and its permissions."""
    actor = request.actor
    may = matrix.all_permissions() if actor.permissions is None else actor.permissions
    return MeOut(name=actor.name, address=actor.address, permissions=sorted(may))


@get(router, "/tokens", action="token.view", answer=Page[TokenOut])
def list_tokens(request: Request, query: Query[TokenQuery]) -> Any:
    """List API tokens, without their texts."""
    rows = services.search_tokens(account=query.account or "", state=query.state or "")
    orders = {"created": "created", "expires": "expires"}
    return page(query, rows, orders, show=lambda found: map(services.shown, found))


@post(router, "/tokens", action="token.create", answer=TokenMade, status=201, secret=True)
def create_token(request: Request, body: TokenIn) -> Any:
    """Add a token for the account of the request.

    Only this answer contains its text: a repeat with the same `Idempotency-Key` gets 409.
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
    """Get an API token, without its text."""
    name = token.removeprefix("rmb_")
    found = ApiToken.objects.select_related("account").filter(public_id=name).first()
    if found is None:
        raise NotFound("there is no such token")
    return services.shown(found)


@post(router, "/tokens/{token}/revoke", action="token.revoke", answer=TokenOut)
def revoke_token(request: Request, token: TokenId) -> Any:
    """Revoke a token; its next request is refused."""
    return services.shown(services.revoke_token(token, actor=request.actor))
