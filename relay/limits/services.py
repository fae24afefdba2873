"""Changes of limits and bans. Everything that writes a `TwinLimit` goes through here.

The database is the record. After the commit the twin's fields in `relay:control` are made to fit,
and the workers act on them within a second. Where Redis was away they are marked as pending, and a
worker calls `publish_all` when Redis is back; the relay calls it when it starts.
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
"""Of the fields about one twin."""


def save(limit: TwinLimit, *, actor: Actor) -> None:
    """Store one row as a whole, after validation, and tell the workers.

    Raises:
        relay.access.errors.Invalid: a field is out of bounds.
    """
    with audit.change(actor, "limit.set", target=limit.twin) as change:
        _store(limit, change)


def remove(twins: Iterable[int], *, actor: Actor) -> int:
    """Forget what was decided about these twins: the relay's limit holds, a ban is lifted.

    Returns:
        How many of them there were.
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
    """Give a twin limits of its own; 0 and 0 is none, None and None is the relay's.

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
    """Give a twin bounds of its own for what waits in queues; None is the relay's.

    Raises:
        relay.access.errors.Invalid: a value is out of bounds.
    """
    with audit.change(actor, "limit.set", target=twin) as change:
        limit = _row(twin)
        limit.waiting_messages, limit.waiting_bytes, limit.waiting_queues = messages, size, queues
        _store(limit, change)


def ban(twin: int, reason: str = "", until: datetime | None = None, *, actor: Actor) -> None:
    """Close a twin's sessions and refuse it.

    Raises:
        relay.access.errors.Invalid: a value is out of bounds, or the time is over.
    """
    addresses.require_future(until)
    with audit.change(actor, "ban.set", target=twin) as change:
        limit = _row(twin)
        limit.banned, limit.ban_reason, limit.banned_until = True, reason, until
        _store(limit, change)


def lift_ban(twin: int, *, actor: Actor) -> None:
    """Let a banned twin in again."""
    with audit.change(actor, "ban.lift", target=twin) as change:
        _lift(_row(twin), change)


def lift_expired_bans(now: datetime | None = None) -> int:
    """Lift the bans of twins, addresses and keys of SBD whose time is over.

    Returns:
        How many there were.
    """
    over = TwinLimit.objects.filter(banned=True, banned_until__lte=now or timezone.now())
    lifted = 0
    for twin in list(over.values_list("twin", flat=True)):
        with audit.change(SYSTEM, "ban.lift", target=twin) as change:
            limit = over.filter(twin=twin).first()  # it may have been made longer just now
            change.happened = limit is not None
            if limit is not None:
                _lift(limit, change)
                lifted += 1
    return lifted + addresses.lift_expired(now) + sbd.lift_expired(now)


def publish_all() -> None:
    """Make `relay:control` what the database says, whatever it was before.

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
    """A twin's row as the audit log has it."""
    fields = (
        *("count", "size", "waiting_messages", "waiting_bytes", "waiting_queues"),
        *("banned", "ban_reason", "banned_until", "note"),
    )
    row: dict[str, Any] | None = TwinLimit.objects.filter(twin=twin).values(*fields).first()
    return row


def _publish(twins: list[int]) -> None:
    """Make these twins' fields what the database says now, also if it was changed once more."""
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
