"""Who wants something done, from where, and what they may do.

A face (admin, REST, a command) makes an `Actor` and hands it to the services, which ask it for the
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
"""As long as Django's user names; an actor's is stored in places that take no longer one."""
TOKEN_CHARS: Final = 20
"""The name of an API token: `rmb_` and 16 digits."""
MAX_ADDRESS_CHARS: Final = 64


class Face(StrEnum):
    """The way by which an actor came."""

    ADMIN = "admin"
    REST = "rest"
    CLI = "cli"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody or something that acts.

    Attributes:
        name: of the account, of the operating system's user, or `system`.
        face: how it came.
        address: from where; empty where there is none.
        permissions: Django permission names such as `relay_sessions.kick_session`; None is all.
        account: user name of the account it is or acts for, in full; empty where it has none.
        token: name of the API token by which it acts; empty where it came otherwise.
    """

    name: str
    face: Face
    address: str
    permissions: frozenset[str] | None
    account: str = ""
    token: str = ""

    def may(self, permission: str) -> bool:
        """Whether it has a permission."""
        return self.permissions is None or permission in self.permissions

    def require(self, permission: str) -> None:
        """Go on only with a permission.

        Raises:
            Denied: it is missing.
        """
        if not self.may(permission):
            raise Denied(permission)


SYSTEM: Final = Actor("system", Face.SYSTEM, "", None)
"""The platform itself: what it does by its own rules, such as lifting a ban that is over."""


def of_request(request: HttpRequest, face: Face) -> Actor:
    """The signed-in account of a request; without one, an actor who may do nothing."""
    user = request.user
    permissions: frozenset[str] | None = frozenset()
    if user.is_active and user.is_superuser:
        permissions = None
    elif user.is_active and user.is_authenticated:
        permissions = frozenset(user.get_all_permissions())
    account = user.get_username()
    return Actor(account[:MAX_NAME_CHARS], face, address_of(request), permissions, account)


def name_of_token(account: str, token: str) -> str:
    """The name of an actor that acts for an account by a token, within `MAX_NAME_CHARS`.

    The name of the token stays whole: it alone says which one it was. With an empty one, the result
    is what the names of all actors begin with that act for this account.
    """
    room = MAX_NAME_CHARS - TOKEN_CHARS - 1
    kept = account if len(account) <= room else f"{account[: room - 1]}…"
    return f"{kept}/{token}"


def of_command() -> Actor:
    """Whoever runs a command on a host of the relay: who may read its secrets may do everything."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        name = "unknown"
    return Actor(name[:MAX_NAME_CHARS], Face.CLI, socket.gethostname()[:MAX_ADDRESS_CHARS], None)


def address_of(request: HttpRequest) -> str:
    """Where a request came from, as the server says."""
    return str(request.META.get("REMOTE_ADDR") or "")[:MAX_ADDRESS_CHARS]
