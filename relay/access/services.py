"""Creation and revocation of API tokens. `relay.access.tokens` authenticates them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone

from relay.access import matrix, tokens
from relay.access.actor import Actor, Face
from relay.access.errors import Conflict, Invalid, NotFound
from relay.access.models import MAX_LABEL_CHARS, ApiToken
from relay.audit import services as audit

DEFAULT_DAYS: Final = 90
MAX_DAYS: Final = 3650
MAX_TOKENS: Final = 100
"""Tokens of one account that are neither revoked nor expired, at most."""


class NewToken(NamedTuple):
    """A new token and its text, which is not stored and cannot be shown again."""

    token: ApiToken
    text: str


def create_token(
    account: str,
    label: str,
    *,
    role: str = "",
    permissions: Sequence[str] = (),
    days: int = DEFAULT_DAYS,
    actor: Actor,
) -> NewToken:
    """Create a token.

    Args:
        account: account that it acts for; except on the command line, that of the actor.
        label: purpose of the token.
        role: role whose permissions it has; or
        permissions: permissions that it has.
        days: days until it expires; it never expires later than the actor's own token.
        actor: actor that creates it, and must have all its permissions.

    Raises:
        Denied: the actor may not create tokens.
        Invalid: a value is out of bounds, or the token would have permissions that its account
            or the actor lacks.
        Conflict: the account has too many tokens.
    """
    with audit.change(actor, "token.create") as change:
        owner = check_token(
            account, label, role=role, permissions=permissions, days=days, actor=actor
        )
        if live_tokens().filter(account=owner).count() >= MAX_TOKENS:
            raise Conflict(f"the account has {MAX_TOKENS} tokens: revoke one first")
        minted = tokens.mint()
        token = ApiToken.objects.create(
            public_id=minted.public_id,
            label=label,
            account=owner,
            role=role,
            permissions=sorted(permissions),
            secret_hash=minted.secret_hash,
            created_by=actor.name,
            expires=_expires(days, actor),
        )
        change.target = str(token)
        change.after = {
            "account": account,
            "label": label,
            "role": role,
            "permissions": token.permissions,
            "expires": token.expires,
        }
    return NewToken(token, minted.text)


def check_token(
    account: str,
    label: str,
    *,
    role: str = "",
    permissions: Sequence[str] = (),
    days: int = DEFAULT_DAYS,
    actor: Actor,
) -> User:
    """Check whether `create_token` would accept these values.

    Returns:
        The account.

    Raises:
        Invalid: it would not.
    """
    wrong: dict[str, str] = {}
    owner = User.objects.filter(username=account, is_active=True).first()
    if owner is None:
        wrong["account"] = "there is no such active account"
    elif actor.face is not Face.CLI and account != actor.account:
        wrong["account"] = "tokens can only be created for your own account"
    if not label.strip() or len(label) > MAX_LABEL_CHARS or not label.isprintable():
        wrong["label"] = f"must be 1 to {MAX_LABEL_CHARS} printable characters"
    if not 1 <= days <= MAX_DAYS:
        wrong["days"] = f"must be 1 to {MAX_DAYS}"
    if role and role not in set(matrix.Role):
        wrong["role"] = f"must be one of {', '.join(matrix.Role)}"
    elif bool(role) == bool(permissions):
        wrong["role"] = "choose a role, or permissions"
    unknown = set(permissions) - matrix.all_permissions()
    if unknown:
        wrong["permissions"] = f"unknown: {', '.join(sorted(unknown))}"[:300]
    if not wrong and owner is not None:
        wanted = tokens.given_to(role, permissions)
        missing = wanted - tokens.permissions_of_account(owner)
        missing |= frozenset() if actor.permissions is None else wanted - actor.permissions
        if missing:
            wrong["role" if role else "permissions"] = (
                f"you or the account do not have: {', '.join(sorted(missing))}"[:300]
            )
    if wrong or owner is None:
        raise Invalid(fields=wrong)
    return owner


def revoke_token(public_id: str, *, actor: Actor) -> ApiToken:
    """Revoke a token; its next request is refused.

    Args:
        public_id: id of the token, with or without its prefix.
        actor: actor that revokes it.

    Raises:
        NotFound: there is no such token.
        Conflict: it is revoked already.
    """
    name = public_id.removeprefix(tokens.PREFIX)
    with audit.change(actor, "token.revoke", target=f"{tokens.PREFIX}{name}") as change:
        token = ApiToken.objects.select_related("account").filter(public_id=name).first()
        if token is None:
            raise NotFound("there is no such token")
        if token.revoked:
            raise Conflict("the token is revoked already")
        change.before = {"account": token.account.get_username(), "label": token.label}
        token.revoked = timezone.now()
        token.save(update_fields=["revoked"])
    return token


def search_tokens(*, account: str = "", state: str = "") -> QuerySet[ApiToken]:
    """Return tokens that match the filters.

    Args:
        account: account that they act for.
        state: `live`, `expired` or `revoked`.
    """
    rows, now = ApiToken.objects.select_related("account"), timezone.now()
    if account:
        rows = rows.filter(account__username=account)
    if state == "revoked":
        rows = rows.filter(revoked__isnull=False)
    elif state == "live":
        rows = rows.filter(revoked=None, expires__gt=now)
    elif state == "expired":
        rows = rows.filter(revoked=None, expires__lte=now)
    return rows


def live_tokens() -> QuerySet[ApiToken]:
    """Return tokens that are neither revoked nor expired."""
    return ApiToken.objects.filter(revoked=None, expires__gt=timezone.now())


def shown(token: ApiToken) -> dict[str, Any]:
    """Return the fields of a token that faces show."""
    moments = ("created", "expires", "last_used", "revoked")
    return {
        "id": str(token),
        "label": token.label,
        "account": token.account.get_username(),
        "role": token.role or None,
        "permissions": sorted(tokens.given_to(token.role, token.permissions)),
        **{name: _iso(getattr(token, name)) for name in moments},
        "last_address": token.last_address,
        "created_by": token.created_by,
        "state": state_of(token),
    }


def state_of(token: ApiToken) -> str:
    """Return the state of a token: `live`, `expired` or `revoked`."""
    if token.revoked:
        return "revoked"
    return "expired" if token.expires <= timezone.now() else "live"


def _expires(days: int, actor: Actor) -> datetime:
    """Return the time of expiry, which is never later than that of the token the actor uses."""
    maker = ApiToken.objects.filter(public_id=actor.token.removeprefix(tokens.PREFIX))
    wanted = timezone.now() + timedelta(days=days)
    return min([wanted, *maker.values_list("expires", flat=True)])


def _iso(moment: Any) -> str | None:
    return moment.isoformat() if moment else None
