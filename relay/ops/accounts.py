"""The first operator of an embedded relay."""

from __future__ import annotations

import secrets
from typing import Final, NamedTuple

from django.contrib.auth import get_user_model

OPERATOR_NAME: Final = "operator"
PASSWORD_BYTES: Final = 15


class FirstOperator(NamedTuple):
    """A new account; the password is known here only, and never again."""

    name: str
    password: str


def make_first_operator() -> FirstOperator | None:
    """Make an operator with a random password, if nobody can sign in yet.

    Returns:
        The account, or None when there is an active operator already.
    """
    users = get_user_model()
    if users.objects.filter(is_superuser=True, is_active=True).exists():
        return None
    name = OPERATOR_NAME
    while users.objects.filter(username=name).exists():
        name = f"{OPERATOR_NAME}-{secrets.token_hex(2)}"
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    users.objects.create_superuser(username=name, email="", password=password)
    return FirstOperator(name, password)
