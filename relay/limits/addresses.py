"""Bans of addresses and networks, for what comes from no twin or from too many.

The database is the record and `relay:control` the copy that workers go by, as for bans of twins. A
ban is for the relay's public listener: handshakes, messages of other relays and every other
request. The operator site stays within reach of a banned address.
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
"""Each worker holds all of them."""
DEFAULT_REASON: Final = "banned"
"""What workers show for a ban without a reason: an empty field would be none."""
ORDERS: Final = {"network": "pk", "updated": "updated"}
_LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


def ban(
    text: str, reason: str = "", until: datetime | None = None, *, actor: Actor, force: bool = False
) -> AddressBan:
    """Refuse all that comes from an address or a network, and end the sessions from there.

    Args:
        text: an address, or a network in CIDR notation.
        reason: for operators.
        until: when it is lifted; None: never by itself.
        actor: who wants it.
        force: also where it is this machine's loopback, or the actor's own address.

    Raises:
        Denied, Away
        Invalid: a value is out of bounds, or the address needs force.
        Conflict: there are `MAX_BANS` of them.
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
        Invalid: it has.
    """
    if until is not None and until <= timezone.now():
        raise Invalid(fields={"until": f"{until:%Y-%m-%d %H:%M} UTC is over"})


def lift(text: str, *, actor: Actor) -> str:
    """Serve an address or a network again.

    Returns:
        The network whose ban was lifted.

    Raises:
        Denied, Away
        Invalid: it is not an address.
        NotFound: it is not banned; says which network around it is.
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
    """Lift the bans whose time is over.

    Returns:
        How many there were.
    """
    over = AddressBan.objects.filter(until__lte=now or timezone.now())
    lifted = 0
    for name in list(over.values_list("pk", flat=True)):
        with audit.change(SYSTEM, "ban.lift", target=name) as change:
            row = over.filter(pk=name).first()  # it may have been made longer just now
            change.happened = row is not None
            if row is not None:
                change.before = _told(row)
                row.delete()
                transaction.on_commit(partial(_publish, name))
                lifted += 1
    return lifted


def find(name: str) -> AddressBan | None:
    """The ban of a network, by its name in the list; None where it is not banned."""
    return AddressBan.objects.filter(pk=name).first()


def search(text: str = "") -> QuerySet[AddressBan]:
    """Bans by a part of the network or of the reason; an address also finds networks around it."""
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
    """All networks that are banned now, to look addresses up in."""
    return BannedNetworks(map(read_network, _holding().values_list("pk", flat=True)))


def deciders(names: Iterable[str]) -> dict[str, AuditEntry]:
    """Who banned some networks, by the audit log."""
    return audit_listing.latest(("ban.set",), names)


def fields() -> dict[str, str]:
    """What `relay:control` has of all bans in force."""
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
    """Refuse what an operator hardly means.

    Raises:
        Invalid: it holds loopback addresses, or the address of the actor.
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
    """Make the field of this network what the database says now."""
    field = f"{control.ADDRESS_BAN_PREFIX}{name}"
    row = _holding().filter(pk=name).first()
    try:
        if row is None:
            control.change({}, [field])
        else:
            control.change({field: row.reason or DEFAULT_REASON})
    except control.ControlError:
        pending.mark(pending.Kind.LIMITS)
