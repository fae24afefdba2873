"""Domains of relays, as twins list them: `host` or `host:port`, and nothing else.

Twins choose this text freely, and it becomes the address of a request: whatever could be read as a
path, a user, a query or a second host is refused. On chain there are no ports; test networks use
them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

MAX_DOMAIN_BYTES: Final = 260
"""A name of 253 characters and a port."""
MAX_HOST_BYTES: Final = 253

_DOMAIN: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)"
    r"(?::(?P<port>[0-9]{1,5}))?"
)


class DomainError(ValueError):
    """The text cannot be the domain of a relay."""


class Place(NamedTuple):
    """Where a relay is reached.

    Attributes:
        host: a name or an address; IPv6 without its brackets.
        port: None for the usual one.
    """

    host: str
    port: int | None


def parse(domain: str) -> Place:
    """Reads a domain.

    Raises:
        DomainError: it is none.
    """
    found = _DOMAIN.fullmatch(domain) if len(domain) <= MAX_DOMAIN_BYTES else None
    if found is None or ".." in domain or len(found["host"]) > MAX_HOST_BYTES:
        raise DomainError("domain: must be host or host:port")
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 0 < port < 65536:
        raise DomainError("domain: the port must be 1 to 65535")
    return Place(found["host"].strip("[]"), port)
