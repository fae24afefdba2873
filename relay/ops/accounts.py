"""The first operator of an embedded relay."""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from django.contrib.auth.models import User

from relay.access.actor import SYSTEM
from relay.audit import services as audit

OPERATOR_NAME: Final = "operator"
PASSWORD_BYTES: Final = 15


class FirstOperator(NamedTuple):
    """A new account; its password is available here only and cannot be read again."""

    name: str
    password: str


def make_first_operator() -> FirstOperator | None:
    """Create an operator with a random password, unless an operator can already sign in.

    Returns:
        The account, or None if there is an active operator already.
    """
    if User.objects.filter(is_superuser=True, is_active=True).exists():
        return None
    name = OPERATOR_NAME
    while User.objects.filter(username=name).exists():
        name = f"{OPERATOR_NAME}-{secrets.token_hex(2)}"
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    with audit.change(SYSTEM, "account.add", target=name) as change:
        User.objects.create_superuser(username=name, email="", password=password)
        change.after = {"is_superuser": True, "why": "nobody could sign in"}
    return FirstOperator(name, password)
