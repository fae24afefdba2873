"""Decisions that are saved but not in force yet, because Redis did not answer when they were made.

The database is the record of bans, limits, relays and twins; workers use the copy in Redis. If a
service cannot write to Redis, it marks the kind of its decision in the database. Every worker
checks for marks every few seconds and publishes the marked kinds as soon as Redis answers.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Final

from django.db import Error as DatabaseError
from django.db.models import F
from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.ops import control
from relay.ops.models import PendingDecision
from relay.ops.redis_client import client
from relay.queues import keys

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 2.0
"""Seconds between two checks of a worker."""
PASSES: Final = 5
"""Maximum number of times that one check publishes; two are enough if no other decision is made
meanwhile."""


TEXT: Final = (
    "saved and pending, not in force: Redis does not answer; "
    "the relay applies it when Redis is back"
)


class Kind(StrEnum):
    """Kind of decisions, published as a whole."""

    LIMITS = "limits"
    """Limits and bans of twins, and the default limit."""
    RELAYS = "relays"
    TWINS = "twins"
    LATTICE = "lattice"
    """Policies of the bridge to the lattice."""


def mark(kind: Kind) -> None:
    """Record that a decision of this kind is not in force."""
    logger.error("a decision about %s is saved and pending: Redis does not answer", kind)
    try:
        _mark(kind)
    except DatabaseError as error:
        logger.error("a decision about %s is not marked as pending: %s", kind, error)


def mark_all() -> None:
    """Mark all kinds to be published again: a relay starts, or Redis lost its data.

    Raises:
        django.db.Error: The database does not answer.
    """
    for kind in Kind:
        _mark(kind)


def _mark(kind: Kind) -> None:
    PendingDecision.objects.update_or_create(
        kind=kind, defaults={"marks": F("marks") + 1}, create_defaults={"marks": 1}
    )


def waiting() -> list[str]:
    """Return the kinds that have decisions not in force."""
    return list(PendingDecision.objects.order_by("kind").values_list("kind", flat=True))


def settle() -> bool:
    """Publish the marked kinds.

    Returns:
        Whether anything came into force.
    """
    try:
        marked = list(PendingDecision.objects.all())
        if not marked:
            return False
        client().ping()  # checks that Redis answers before the tables are read
        for each in marked:
            if _publish_as_it_is(Kind(each.kind)):
                # A kind that was marked again in the meantime stays.
                PendingDecision.objects.filter(kind=each.kind, marks=each.marks).delete()
        if not client().exists(keys.CONTROL):
            control.change({})  # so that its loss is detected only once
    except (RedisError, DatabaseError, Away) as error:
        logger.debug("decisions are still pending: %s", error)
        return False
    return True


def _publish_as_it_is(kind: Kind) -> bool:
    """Publish until no other process has published anything at the same time.

    Otherwise a decision made and published after the tables were read would be undone.

    Returns:
        Whether the last pass was undisturbed.
    """
    for _ in range(PASSES):
        before = control.version()
        _publish(kind)
        if control.version() == before:
            return True
    return False


def _publish(kind: Kind) -> None:
    # Imported here because the services use this module, and load the audit log.
    from relay.federation import services as federation
    from relay.lattice import services as lattice
    from relay.limits import services as limits
    from relay.twins import services as twins

    match kind:
        case Kind.LIMITS:
            limits.publish_all()
        case Kind.RELAYS:
            federation.publish_all()
        case Kind.TWINS:
            twins.publish_all()
        case Kind.LATTICE:
            lattice.publish_all()
