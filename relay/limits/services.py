"""Changes of limits and bans of twins. Everything that writes a `TwinLimit` goes through here.

The database has the record. After the commit, the twin's fields in `relay:control` are updated, and
workers apply them within a second. If Redis does not answer, they are marked as pending, and a
worker calls `publish_all` when Redis answers again; the relay also calls it when it starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from relay.access.actor import SYSTEM, Actor
from relay.audit import services as audit
from relay.limits import addresses, defaults, sbd
from relay.limits.models import TwinLimit
from relay.ops import control, pending

PREFIXES: Final = (control.BAN_PREFIX, control.LIMIT_PREFIX, control.WAITING_PREFIX)
"""Prefixes of the fields for one twin."""


def save(limit: TwinLimit, *, actor: Actor) -> None:
    """Validate and store a whole row, and publish it to the workers.

    Raises:
        relay.access.errors.Invalid: a field is out of bounds.
    """
    with audit.change(actor, "limit.set", target=limit.twin) as change:
        _store(limit, change)


def remove(twins: Iterable[int], *, actor: Actor) -> int:
    """Delete the rows of these twins: the limit of all twins applies, and bans are lifted.

    Returns:
        Number of rows deleted.
    """
    ids = list(twins)
    removed = 0
    with transaction.atomic():
        for twin in ids:
            with audit.change(actor, "limit.remove", target=twin) as change:
                change.before = _told(twin)
                change.happened = bool(TwinLimit.objects.filter(twin=twin).delete()[0])
            removed += change.happened
        transaction.on_commit(partial(_publish, ids))
    return removed


def set_limit(twin: int, count: int | None, size: int | None, *, actor: Actor) -> None:
    """Set the limits of a twin; 0 and 0 for no limit, None and None for the limit of all twins.

    Raises:
        relay.access.errors.Invalid: a value is out of bounds, or only one is given.
    """
    with audit.change(actor, "limit.set", target=twin) as change:
        limit = _row(twin)
        limit.count, limit.size = count, size
        _store(limit, change)


def set_waiting(
    twin: int, messages: int | None, size: int | None, queues: int | None, *, actor: Actor
) -> None:
    """Set the bounds of a twin for what waits in queues; None for the relay's bound.

    Raises:
        relay.access.errors.Invalid: a value is out of bounds.
    """
    with audit.change(actor, "limit.set", target=twin) as change:
        limit = _row(twin)
        limit.waiting_messages, limit.waiting_bytes, limit.waiting_queues = messages, size, queues
        _store(limit, change)


def ban(twin: int, reason: str = "", until: datetime | None = None, *, actor: Actor) -> None:
    """Close a twin's sessions, and refuse new ones and its messages.

    Raises:
        relay.access.errors.Invalid: a value is out of bounds, or the time is over.
    """
    addresses.require_future(until)
    with audit.change(actor, "ban.set", target=twin) as change:
        limit = _row(twin)
        limit.banned, limit.ban_reason, limit.banned_until = True, reason, until
        _store(limit, change)


def lift_ban(twin: int, *, actor: Actor) -> None:
    """Lift the ban of a twin."""
    with audit.change(actor, "ban.lift", target=twin) as change:
        _lift(_row(twin), change)


def lift_expired_bans(now: datetime | None = None) -> int:
    """Lift the bans of twins, addresses and SBD keys that have ended.

    Returns:
        Number of bans lifted.
    """
    over = TwinLimit.objects.filter(banned=True, banned_until__lte=now or timezone.now())
    lifted = 0
    for twin in list(over.values_list("twin", flat=True)):
        with audit.change(SYSTEM, "ban.lift", target=twin) as change:
            limit = over.filter(twin=twin).first()  # it may just have been extended
            change.happened = limit is not None
            if limit is not None:
                _lift(limit, change)
                lifted += 1
    return lifted + addresses.lift_expired(now) + sbd.lift_expired(now)


def publish_all() -> None:
    """Replace the limits and bans in `relay:control` by those of the database.

    Raises:
        relay.ops.control.ControlError: Redis does not answer.
    """
    put = addresses.fields() | sbd.fields()
    told = Q(banned=True) | Q(count__isnull=False)
    for field in ("waiting_messages", "waiting_bytes", "waiting_queues"):
        told |= Q(**{f"{field}__isnull": False})
    for limit in TwinLimit.objects.filter(told).iterator():
        put.update(_fields(limit))
    control.replace((*PREFIXES, control.ADDRESS_BAN_PREFIX, *sbd.PREFIXES), put)
    defaults.publish()


def _lift(limit: TwinLimit, change: audit.Change) -> None:
    limit.banned, limit.banned_until = False, None
    _store(limit, change)


def _store(limit: TwinLimit, change: audit.Change) -> None:
    limit.full_clean(validate_unique=False)
    change.before = _told(limit.twin)
    limit.save()
    change.after = _told(limit.twin)
    transaction.on_commit(partial(_publish, [limit.twin]))


def _told(twin: int) -> dict[str, Any] | None:
    """Return a twin's row for the audit log."""
    fields = (
        *("count", "size", "waiting_messages", "waiting_bytes", "waiting_queues"),
        *("banned", "ban_reason", "banned_until", "note"),
    )
    row: dict[str, Any] | None = TwinLimit.objects.filter(twin=twin).values(*fields).first()
    return row


def _publish(twins: list[int]) -> None:
    """Update these twins' fields from the database, which may have changed again since."""
    put: dict[str, str] = {}
    for limit in TwinLimit.objects.filter(twin__in=twins):
        put.update(_fields(limit))
    names = [f"{prefix}{twin}" for prefix in PREFIXES for twin in twins]
    try:
        control.change(put, [name for name in names if name not in put])
    except control.ControlError:
        pending.mark(pending.Kind.LIMITS)


def _fields(limit: TwinLimit) -> dict[str, str]:
    fields = {}
    if limit.ban_holds():
        fields[f"{control.BAN_PREFIX}{limit.twin}"] = limit.ban_reason or addresses.DEFAULT_REASON
    if limit.count is not None and limit.size is not None:
        fields[f"{control.LIMIT_PREFIX}{limit.twin}"] = f"{limit.count} {limit.size}"
    if any(limit.waiting):
        told = " ".join(str(bound or 0) for bound in limit.waiting)
        fields[f"{control.WAITING_PREFIX}{limit.twin}"] = told
    return fields


def _row(twin: int) -> TwinLimit:
    return TwinLimit.objects.filter(twin=twin).first() or TwinLimit(twin=twin)
