"""Lets operators end connections that carry sessions on streams.

A kick is an order in Redis that names the connection by its worker and its number there, which is
never reused. The worker ends the connection within a second.
"""

from __future__ import annotations

from typing import Final

from relay.access.actor import Actor
from relay.access.errors import Conflict, NotFound
from relay.audit import services as audit
from relay.mux import listing
from relay.mux.listing import Connection
from relay.ops import control

MAX_DIGITS: Final = 19
"""Maximum number of digits in the number of a connection."""


def kick(worker: str, number: int, *, actor: Actor, reason: str = "") -> Connection:
    """End one connection and all its sessions.

    Args:
        worker: boot id of the worker that serves it.
        number: number of the connection at the worker.
        actor: operator who ends it.
        reason: reason for the audit log.

    Returns:
        The connection, as last reported.

    Raises:
        Denied, Away
        NotFound: it is not open, or not among those that its worker reports.
    """
    with audit.change(actor, "session.kick", target=f"{worker}/{number}") as change:
        found = listing.get(worker, number)
        change.before = {
            "address": found.address, "streams": found.streams, "sessions": found.sessions,
        }  # fmt: skip
        change.after = {"reason": reason}
        control.kick_connection(worker, number, reason or f"kicked by {actor.name}")
    return found


def find(text: str) -> Connection:
    """Return the connection that an operator names.

    Args:
        text: id of the connection, or an address that only one connection has.

    Raises:
        Away
        NotFound: there is no such connection.
        Conflict: there are several.
    """
    worker, slash, number = text.rpartition("/")
    if slash and number.isascii() and number.isdecimal() and len(number) <= MAX_DIGITS:
        return listing.get(worker, int(number))
    found = listing.live(address=text, limit=listing.MAX_TOLD).items
    if not found:
        raise NotFound(f"there is no connection from {text}")
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise Conflict(f"several connections are from {text}; name one of them: {ids}")
    return found[0]
