"""Actors: the account that requests an operation, its address and its permissions.

A face (admin, REST, a command) creates an `Actor` and passes it to the services, which check its
permission and write its name into the audit log. Services never see a request.
"""

from __future__ import annotations

import getpass
import socket
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from django.http import HttpRequest

from relay.access.errors import Denied

MAX_NAME_CHARS: Final = 150
"""Maximum length of an actor's name: that of Django's user names, which its columns have too."""
TOKEN_CHARS: Final = 20
"""Length of the name of an API token: `rmb_` and 16 digits."""
MAX_ADDRESS_CHARS: Final = 64


class Face(StrEnum):
    """Interface through which an actor acts."""

    ADMIN = "admin"
    REST = "rest"
    CLI = "cli"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """A person or program that acts.

    Attributes:
        name: name of the account or of the operating system's user, or `system`.
        face: interface that it uses.
        address: its address; empty if it has none.
        permissions: Django permission names such as `relay_sessions.kick_session`; None for all.
        account: full user name of the account that it is or acts for; empty without an account.
        token: name of the API token that it uses; empty if it uses none.
    """

    name: str
    face: Face
    address: str
    permissions: frozenset[str] | None
    account: str = ""
    token: str = ""

    def may(self, permission: str) -> bool:
        """Check whether it has a permission."""
        return self.permissions is None or permission in self.permissions

    def require(self, permission: str) -> None:
        """Require a permission.

        Raises:
            Denied: it is missing.
        """
        if not self.may(permission):
            raise Denied(permission)


SYSTEM: Final = Actor("system", Face.SYSTEM, "", None)
"""The platform itself, for what it does by its own rules, such as lifting a ban that has ended."""


def of_request(request: HttpRequest, face: Face) -> Actor:
    """Return the signed-in account of a request; without one, an actor without permissions."""
    user = request.user
    permissions: frozenset[str] | None = frozenset()
    if user.is_active and user.is_superuser:
        permissions = None
    elif user.is_active and user.is_authenticated:
        permissions = frozenset(user.get_all_permissions())
    account = user.get_username()
    return Actor(account[:MAX_NAME_CHARS], face, address_of(request), permissions, account)


def name_of_token(account: str, token: str) -> str:
    """Return the name of an actor that acts for an account by a token, within `MAX_NAME_CHARS`.

    The name of the token is never cut, because it alone identifies the token. If it is empty, the
    result is the prefix of the names of all actors that act for this account by tokens.
    """
    room = MAX_NAME_CHARS - TOKEN_CHARS - 1
    kept = account if len(account) <= room else f"{account[: room - 1]}…"
    return f"{kept}/{token}"


def of_command() -> Actor:
    """Return the actor of a command on a host of the relay. It has all permissions, because a user
    who can read the relay's secrets can do everything anyway.
    """
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        name = "unknown"
    return Actor(name[:MAX_NAME_CHARS], Face.CLI, socket.gethostname()[:MAX_ADDRESS_CHARS], None)


def address_of(request: HttpRequest) -> str:
    """Return the address that a request came from, as the server reports it."""
    return str(request.META.get("REMOTE_ADDR") or "")[:MAX_ADDRESS_CHARS]
