"""The limit of every twin that has no limit of its own.

The settings contain it (`limits.count`, `limits.size`) until an operator sets another, which is
stored in the database, passed to the workers through `relay:control`, and applied within a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from django.conf import settings
from django.db import transaction

from relay.access.actor import Actor
from relay.access.errors import Invalid
from relay.audit import services as audit
from relay.limits.models import DefaultLimit
from relay.ops import control, pending

MAX_VALUE: Final = 1 << 53
"""Maximum number of messages or bytes; more would be no limit."""


@dataclass(frozen=True, slots=True)
class Default:
    """Messages and bytes a minute; 0 and 0 mean no limit.

    Attributes:
        source: `operator`, or `settings` if no operator has set another limit.
        updated: time at which an operator set it.
    """

    count: int
    size: int
    source: Literal["operator", "settings"]
    updated: datetime | None = None


def get() -> Default:
    """Return the limit in force."""
    row = DefaultLimit.objects.first()
    if row is not None:
        return Default(row.count, row.size, "operator", row.updated)
    return Default(settings.RMB.limits.count, settings.RMB.limits.size, "settings")


def put(count: int, size: int, *, actor: Actor) -> None:
    """Set the limit; 0 and 0 mean no limit.

    Raises:
        Denied, Away
        Invalid: a value is out of bounds, or one of them is 0 and the other is not.
    """
    fields = {
        name: f"must be between 0 and {MAX_VALUE}"
        for name, value in (("count", count), ("size", size))
        if not 0 <= value <= MAX_VALUE
    }
    if fields:
        raise Invalid(fields=fields)
    if bool(count) != bool(size):
        raise Invalid(fields={"count" if size else "size": "set both, or both to 0"})
    with audit.change(actor, "limit.default") as change:
        change.before = _told()
        DefaultLimit.objects.update_or_create(id=1, defaults={"count": count, "size": size})
        change.after = _told()
        transaction.on_commit(_publish)


def clear(*, actor: Actor) -> None:
    """Reset the limit to the settings.

    Raises:
        Denied, Away
    """
    with audit.change(actor, "limit.default") as change:
        change.before = _told()
        change.happened = bool(DefaultLimit.objects.all().delete()[0])
        change.after = _told()
        transaction.on_commit(_publish)


def publish() -> None:
    """Update `relay:control` from the database.

    Raises:
        relay.ops.control.ControlError: Redis does not answer.
    """
    row = DefaultLimit.objects.first()
    told = {control.DEFAULT_LIMIT: f"{row.count} {row.size}"} if row is not None else {}
    control.replace((), told, (control.DEFAULT_LIMIT,))


def _publish() -> None:
    try:
        publish()
    except control.ControlError:
        pending.mark(pending.Kind.LIMITS)


def _told() -> dict[str, object]:
    found = get()
    return {"count": found.count, "size": found.size, "source": found.source}
