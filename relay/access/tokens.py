"""Texts of API tokens, their authentication and their permissions.

    rmb_<16 hexadecimal digits>_<43 characters>

The prefix lets secret scanners find a leaked token, and the id lets logs and pages name a token.
The rest are 256 random bits, of which only the SHA-256 is stored: they cannot be guessed, so no
slow hash is needed.

A token acts for an account. Its permissions are computed at each use: those that it was given and
that the account has now. It is refused if the account is deactivated.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import timezone

from relay.access import matrix
from relay.access.actor import MAX_ADDRESS_CHARS, Actor, Face, name_of_token
from relay.access.models import PUBLIC_ID_CHARS, ApiToken

PREFIX: Final = "rmb_"
SECRET_BYTES: Final = 32
USE_NOTED_S: Final = 60
"""Least seconds between two updates of a token's last use."""

_FORM: Final = re.compile(r"rmb_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")


class Minted(NamedTuple):
    """A new token; its text is known only now."""

    text: str
    public_id: str
    secret_hash: str


def mint() -> Minted:
    """Generate the text of a token. Nothing is stored."""
    public_id = secrets.token_hex(PUBLIC_ID_CHARS // 2)
    text = f"{PREFIX}{public_id}_{secrets.token_urlsafe(SECRET_BYTES)}"
    return Minted(text, public_id, hash_of(text))


def hash_of(text: str) -> str:
    """Return the hash that is stored of a token."""
    return hashlib.sha256(text.encode()).hexdigest()


def authenticate(text: str, address: str) -> Actor | None:
    """Return the actor of a token.

    Args:
        text: token as the client sent it.
        address: address of the client.

    Returns:
        The actor; None if the token is unknown, expired or revoked, or its account is not active.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        return None
    token = ApiToken.objects.select_related("account").filter(public_id=form[1]).first()
    if token is None or not hmac.compare_digest(token.secret_hash, hash_of(text)):
        return None
    now = timezone.now()
    if token.revoked or token.expires <= now or not token.account.is_active:
        return None
    _note_use(token, address, now)
    account = token.account.get_username()
    return Actor(
        name=name_of_token(account, str(token)),
        face=Face.REST,
        address=address[:MAX_ADDRESS_CHARS],
        permissions=permissions_of(token),
        account=account,
        token=str(token),
    )


def permissions_of(token: ApiToken) -> frozenset[str]:
    """Return the permissions that a token has now."""
    return given_to(token.role, token.permissions) & permissions_of_account(token.account)


def given_to(role: str, permissions: Iterable[str]) -> frozenset[str]:
    """Return the permissions that a token with this role or these permissions has at most."""
    return matrix.permissions_of(matrix.Role(role)) if role else frozenset(permissions)


def permissions_of_account(account: User | Any) -> frozenset[str]:
    """Return the permissions of an account that are in the matrix."""
    if not account.is_active:
        return frozenset()
    if account.is_superuser:
        return matrix.all_permissions()
    return frozenset(account.get_all_permissions()) & matrix.all_permissions()


def _note_use(token: ApiToken, address: str, now: datetime) -> None:
    """Record the last use once a minute, so that a busy client does not write with each request."""
    before = now - timedelta(seconds=USE_NOTED_S)
    if token.last_used is not None and token.last_used > before:
        return
    ApiToken.objects.filter(Q(last_used=None) | Q(last_used__lte=before), pk=token.pk).update(
        last_used=now, last_address=address[:MAX_ADDRESS_CHARS]
    )
