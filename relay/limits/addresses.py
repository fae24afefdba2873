"""Bans of addresses and networks, for traffic that comes from no twin or from too many twins.

The database has the record, and `relay:control` the copy that workers read, as for bans of twins. A
ban applies to the relay's public listener: handshakes, messages of partner relays and every other
request. A banned address can still reach the operator site.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from proto.limits.addresses import (
    BannedNetworks,
    Network,
    NetworkError,
    read_address,
    read_network,
    shown_network,
)
from relay.access.actor import SYSTEM, Actor
from relay.access.errors import Conflict, Invalid, NotFound
from relay.audit import listing as audit_listing
from relay.audit import services as audit
from relay.audit.models import AuditEntry
from relay.limits.models import AddressBan
from relay.ops import control, pending

MAX_BANS: Final = 5000
"""Bans at once, at most: each worker holds all of them in memory."""
DEFAULT_REASON: Final = "banned"
"""Reason that workers show for a ban without one: an empty field would be no ban."""
ORDERS: Final = {"network": "pk", "updated": "updated"}
_LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


def ban(
    text: str, reason: str = "", until: datetime | None = None, *, actor: Actor, force: bool = False
) -> AddressBan:
    """Refuse all requests from an address or a network, and end the sessions from there.

    Args:
        text: an address, or a network in CIDR notation.
        reason: reason for operators.
        until: time at which it is lifted; None for never.
        actor: actor that bans it.
        force: whether to ban it even if it contains loopback addresses or the actor's own
            address.

    Raises:
        Denied, Away
        Invalid: a value is out of bounds, or the address needs `force`.
        Conflict: there are `MAX_BANS` bans.
    """
    network = _network(text)
    require_future(until)
    if not force:
        _refuse_own(network, actor)
    name = shown_network(network)
    with audit.change(actor, "ban.set", target=name) as change:
        row = AddressBan.objects.filter(pk=name).first()
        change.before = row and _told(row)
        if row is None:
            if AddressBan.objects.count() >= MAX_BANS:
                raise Conflict(f"{MAX_BANS:,} addresses are banned: lift some, or ban networks")
            row = AddressBan(network=name)
        row.reason, row.until = reason, until
        row.full_clean(validate_unique=False)
        row.save()
        change.after = _told(row)
        transaction.on_commit(partial(_publish, name))
    return row


def require_future(until: datetime | None) -> None:
    """Refuse an end of a ban that has passed.

    Raises:
        Invalid: the time has passed.
    """
    if until is not None and until <= timezone.now():
        raise Invalid(fields={"until": f"{until:%Y-%m-%d %H:%M} UTC is over"})


def lift(text: str, *, actor: Actor) -> str:
    """Lift the ban of an address or a network.

    Returns:
        The network whose ban was lifted.

    Raises:
        Denied, Away
        Invalid: it is not an address.
        NotFound: it is not banned; the error names a banned network that contains it.
    """
    network = _network(text)
    name = shown_network(network)
    with audit.change(actor, "ban.lift", target=name) as change:
        row = AddressBan.objects.filter(pk=name).first()
        if row is None:
            around = _around(network)
            hint = f"; {around} is, which holds it: lift that ban" if around else ""
            raise NotFound(f"{name} is not banned{hint}")
        change.before = _told(row)
        row.delete()
        transaction.on_commit(partial(_publish, name))
    return name


def lift_expired(now: datetime | None = None) -> int:
    """Lift the bans that have ended.

    Returns:
        Number of bans lifted.
    """
    over = AddressBan.objects.filter(until__lte=now or timezone.now())
    lifted = 0
    for name in list(over.values_list("pk", flat=True)):
        with audit.change(SYSTEM, "ban.lift", target=name) as change:
            row = over.filter(pk=name).first()  # it may just have been extended
            change.happened = row is not None
            if row is not None:
                change.before = _told(row)
                row.delete()
                transaction.on_commit(partial(_publish, name))
                lifted += 1
    return lifted


def find(name: str) -> AddressBan | None:
    """Return the ban of a network, by its name in the list; None if it is not banned."""
    return AddressBan.objects.filter(pk=name).first()


def search(text: str = "") -> QuerySet[AddressBan]:
    """Search bans by a part of the network or reason; an address finds networks that contain it."""
    rows = AddressBan.objects.all()
    if not text:
        return rows
    found = Q(network__icontains=text) | Q(reason__icontains=text)
    address = read_address(text)
    if address is not None:
        names = rows.values_list("pk", flat=True)
        found |= Q(pk__in=[name for name in names if address in ipaddress.ip_network(name)])
    return rows.filter(found)


def in_force() -> BannedNetworks:
    """Return all networks that are banned now, for look-ups of addresses."""
    return BannedNetworks(map(read_network, _holding().values_list("pk", flat=True)))


def deciders(names: Iterable[str]) -> dict[str, AuditEntry]:
    """Return the audit entry of the last ban of each of some networks."""
    return audit_listing.latest(("ban.set",), names)


def fields() -> dict[str, str]:
    """Return the fields of `relay:control` for all bans in force."""
    return {
        f"{control.ADDRESS_BAN_PREFIX}{row.network}": row.reason or DEFAULT_REASON
        for row in _holding()
    }


def _holding() -> QuerySet[AddressBan]:
    return AddressBan.objects.filter(Q(until=None) | Q(until__gt=timezone.now()))


def _network(text: str) -> Network:
    try:
        return read_network(text)
    except NetworkError as error:
        raise Invalid(fields={"network": str(error)}) from None


def _refuse_own(network: Network, actor: Actor) -> None:
    """Refuse a ban that an operator hardly intends.

    Raises:
        Invalid: it contains loopback addresses, or the address of the actor.
    """
    own = read_address(actor.address)
    what = ""
    if any(each.version == network.version and each.overlaps(network) for each in _LOOPBACK):
        what = "addresses of this machine itself"
    elif own is not None and own in network:
        what = f"your own address, {own}"
    if what:
        raise Invalid(
            fields={"network": f"{shown_network(network)} holds {what}; use force to ban it"}
        )


def _around(network: Network) -> str:
    for name in AddressBan.objects.values_list("pk", flat=True):
        other = read_network(name)
        if other.version == network.version and network.subnet_of(other):  # type: ignore[arg-type]
            return name
    return ""


def _told(row: AddressBan) -> dict[str, Any]:
    return {"network": row.network, "reason": row.reason, "until": row.until}


def _publish(name: str) -> None:
    """Update the field of this network from the database."""
    field = f"{control.ADDRESS_BAN_PREFIX}{name}"
    row = _holding().filter(pk=name).first()
    try:
        if row is None:
            control.change({}, [field])
        else:
            control.change({field: row.reason or DEFAULT_REASON})
    except control.ControlError:
        pending.mark(pending.Kind.LIMITS)
