"""Bans of SBD keys, and SBD limits of single keys and networks.

Without a limit here, `sbd.limit_kbit_per_s` applies to each address. The database has the record,
and `relay:control` the copy that workers read, as for twins; `relay.sbd.decisions` reads it there.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from proto.limits.addresses import NetworkError, read_network, shown_network
from proto.sbd.bounds import PATH_CHARS
from proto.sbd.errors import KeyFormatError
from proto.sbd.frames import is_addressable, key_of_path
from relay.access.actor import SYSTEM, Actor
from relay.access.errors import Conflict, Invalid, NotFound
from relay.audit import listing as audit_listing
from relay.audit import services as audit
from relay.audit.models import AuditEntry
from relay.limits.addresses import DEFAULT_REASON, require_future
from relay.limits.listing import DECISIONS
from relay.limits.models import MAX_KBIT_PER_S, SbdLimit
from relay.ops import control, pending

MAX_ROWS: Final = 5000
"""Rows at once, at most: each worker holds all of them in memory."""
ORDERS: Final = {"subject": "pk", "updated": "updated"}
PREFIXES: Final = (control.KEY_BAN_PREFIX, control.KEY_LIMIT_PREFIX, control.NETWORK_LIMIT_PREFIX)
MAX_SHOWN_CHARS: Final = 64
"""Characters of an invalid key that an error shows."""


def ban(text: str, reason: str = "", until: datetime | None = None, *, actor: Actor) -> SbdLimit:
    """End the connections of a key, and refuse new ones.

    Args:
        text: key as a path names it.
        reason: reason for operators.
        until: time at which the ban is lifted; None for never.
        actor: actor that bans it.

    Raises:
        Denied, Away
        Invalid: it is not a key, or a value is out of bounds.
        Conflict: there are `MAX_ROWS` rows.
    """
    key = _key(text)
    require_future(until)
    with audit.change(actor, "ban.set", target=key) as change:
        row = find(key) or SbdLimit(subject=key)
        _change(row, change, banned=True, ban_reason=reason, banned_until=until)
    return row


def lift_ban(text: str, *, actor: Actor) -> str:
    """Lift the ban of a key.

    Returns:
        The key.

    Raises:
        Denied, Away
        Invalid: it is not a key.
        NotFound: it is not banned.
    """
    key = _key(text)
    with audit.change(actor, "ban.lift", target=key) as change:
        row = find(key)
        if row is None or not row.banned:
            raise NotFound(f"key {key} is not banned")
        _lift(row, change)
    return key


def set_limit(text: str, kbit_per_s: int | None, *, actor: Actor) -> SbdLimit:
    """Set the limit of a key, or of each address of a network.

    Args:
        text: key as a path names it, an address, or a network in CIDR notation.
        kbit_per_s: limit; 0 for no limit, None for the limit of the settings.
        actor: actor that sets it.

    Raises:
        Denied, Away
        Invalid: it is neither a key nor a network, or a value is out of bounds.
        NotFound: there is no limit to remove.
        Conflict: there are `MAX_ROWS` rows.
    """
    subject = _subject(text)
    if kbit_per_s is not None and not 0 <= kbit_per_s <= MAX_KBIT_PER_S:
        bounds = f"must be between 0 (no limit) and {MAX_KBIT_PER_S}"
        raise Invalid(fields={"kbit_per_s": f"{kbit_per_s} kbit/s {bounds}"})
    with audit.change(actor, "limit.set", target=subject) as change:
        row = find(subject)
        if kbit_per_s is None and (row is None or row.kbit_per_s is None):
            raise NotFound(f"{subject} has no limit of its own")
        row = row or SbdLimit(subject=subject)
        _change(row, change, kbit_per_s=kbit_per_s)
    return row


def lift_expired(now: datetime | None = None) -> int:
    """Lift the bans that have ended.

    Returns:
        Number of bans lifted.
    """
    over = SbdLimit.objects.filter(banned=True, banned_until__lte=now or timezone.now())
    lifted = 0
    for key in list(over.values_list("pk", flat=True)):
        with audit.change(SYSTEM, "ban.lift", target=key) as change:
            row = over.filter(pk=key).first()  # it may just have been extended
            change.happened = row is not None
            if row is not None:
                _lift(row, change)
                lifted += 1
    return lifted


def find(subject: str) -> SbdLimit | None:
    """Return the row of a key or a network, by its name in the list."""
    return SbdLimit.objects.filter(pk=subject).first()


def search(text: str = "", *, banned: bool | None = None) -> QuerySet[SbdLimit]:
    """Search rows by a part of the key, of the network or of a ban's reason.

    Args:
        banned: only keys that are banned, or only the others.
    """
    rows = SbdLimit.objects.all()
    if text:
        rows = rows.filter(Q(subject__icontains=text) | Q(ban_reason__icontains=text))
    return rows if banned is None else rows.filter(banned=banned)


def deciders(subjects: Iterable[str]) -> dict[str, AuditEntry]:
    """Return the audit entry of the last decision about each of some keys and networks."""
    return audit_listing.latest(DECISIONS, subjects)


def fields() -> dict[str, str]:
    """Return the fields of `relay:control` for all rows."""
    return {name: value for row in SbdLimit.objects.all() for name, value in _fields(row).items()}


def _key(text: str) -> str:
    text = text.strip()
    try:
        if is_addressable(key_of_path(text)):
            return text
        why = "begins with 28 zero bytes, as commands do"
    except KeyFormatError:
        why = f"is not a key: expected {PATH_CHARS} characters of base64url without padding"
    raise Invalid(
        fields={
            "key": f"{text[:MAX_SHOWN_CHARS]!r} {why}; write it as in the path that its client "
            "connects to"
        }
    )


def _subject(text: str) -> str:
    if not {".", ":", "/"} & set(text):
        try:
            return _key(text)
        except Invalid as error:
            raise Invalid(fields={"subject": error.fields["key"]}) from None
    try:
        network = read_network(text)
    except NetworkError as error:
        raise Invalid(fields={"subject": str(error)}) from None
    prefix = settings.RMB.sbd.ipv6_prefix
    if network.version == 6 and network.prefixlen > prefix:
        around = shown_network(network.supernet(new_prefix=prefix))
        raise Invalid(
            fields={
                "subject": f"{shown_network(network)} has no limit of its own, as sbd.ipv6_prefix "
                f"is {prefix}; limit {around}"
            }
        )
    return shown_network(network)


def _lift(row: SbdLimit, change: audit.Change) -> None:
    _change(row, change, banned=False, ban_reason="", banned_until=None)


def _change(row: SbdLimit, change: audit.Change, **values: Any) -> None:
    """Store a row, or delete it if it has neither a limit nor a ban any more."""
    before = find(row.subject)
    if before is None and SbdLimit.objects.count() >= MAX_ROWS:
        raise Conflict(f"{MAX_ROWS:,} keys and networks of SBD have limits or bans: remove some")
    change.before = before and _told(before)
    for name, value in values.items():
        setattr(row, name, value)
    row.full_clean(validate_unique=False)
    if row.banned or row.kbit_per_s is not None:
        row.save()
        change.after = _told(row)
    else:
        SbdLimit.objects.filter(pk=row.subject).delete()
    transaction.on_commit(partial(_publish, row.subject))


def _told(row: SbdLimit) -> dict[str, Any]:
    names = ("kbit_per_s", "banned", "ban_reason", "banned_until")
    return {name: getattr(row, name) for name in names}


def _publish(subject: str) -> None:
    """Update the fields of this subject from the database."""
    row = find(subject)
    put = _fields(row) if row is not None else {}
    names = [f"{prefix}{subject}" for prefix in PREFIXES]
    try:
        control.change(put, [name for name in names if name not in put])
    except control.ControlError:
        pending.mark(pending.Kind.LIMITS)


def _fields(row: SbdLimit) -> dict[str, str]:
    fields = {}
    if row.banned and not row.ban_is_over():
        fields[f"{control.KEY_BAN_PREFIX}{row.subject}"] = row.ban_reason or DEFAULT_REASON
    if row.kbit_per_s is not None:
        prefix = control.KEY_LIMIT_PREFIX if row.is_key else control.NETWORK_LIMIT_PREFIX
        fields[f"{prefix}{row.subject}"] = str(row.kbit_per_s)
    return fields
