"""Decisions that are saved and not in force yet, because Redis did not answer when they were made.

The database is the record of bans, limits, relays and twins; workers go by what Redis has of it. A
service that cannot tell Redis marks the kind of its decision in the database. Every worker looks
for marks each few seconds and publishes the marked kinds as soon as Redis answers.
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
"""Seconds between two looks of a worker."""
PASSES: Final = 5
"""So often at most one look publishes; two are enough where nobody decides anything meanwhile."""


TEXT: Final = (
    "saved and pending, not in force: Redis does not answer; "
    "the relay applies it when Redis is back"
)


class Kind(StrEnum):
    """What is published as a whole."""

    LIMITS = "limits"
    """Of twins: limits and bans, and the limit of all others."""
    RELAYS = "relays"
    TWINS = "twins"
    LATTICE = "lattice"
    """Policies of the bridge."""


def mark(kind: Kind) -> None:
    """Note that a decision of this kind is not in force."""
    logger.error("a decision about %s is saved and pending: Redis does not answer", kind)
    try:
        _mark(kind)
    except DatabaseError as error:
        logger.error("a decision about %s is not marked as pending: %s", kind, error)


def mark_all() -> None:
    """Have everything published again: a relay starts, or Redis lost what it had.

    Raises:
        django.db.Error: the database does not answer.
    """
    for kind in Kind:
        _mark(kind)


def _mark(kind: Kind) -> None:
    PendingDecision.objects.update_or_create(
        kind=kind, defaults={"marks": F("marks") + 1}, create_defaults={"marks": 1}
    )


def waiting() -> list[str]:
    """The kinds of which decisions are not in force."""
    return list(PendingDecision.objects.order_by("kind").values_list("kind", flat=True))


def settle() -> bool:
    """Publish what is marked.

    Returns:
        Whether something came into force.
    """
    try:
        marked = list(PendingDecision.objects.all())
        if not marked:
            return False
        client().ping()  # one answer before the tables are read
        for each in marked:
            if _publish_as_it_is(Kind(each.kind)):
                # One that was marked again meanwhile stays.
                PendingDecision.objects.filter(kind=each.kind, marks=each.marks).delete()
        if not client().exists(keys.CONTROL):
            control.change({})  # so that it is seen to be lost only once
    except (RedisError, DatabaseError, Away) as error:
        logger.debug("decisions are still pending: %s", error)
        return False
    return True


def _publish_as_it_is(kind: Kind) -> bool:
    """Publish until nobody has told the workers anything meanwhile.

    What was decided and told between the look at the tables and the end would be undone otherwise.

    Returns:
        Whether that was so in the end.
    """
    for _ in range(PASSES):
        before = control.version()
        _publish(kind)
        if control.version() == before:
            return True
    return False


def _publish(kind: Kind) -> None:
    # Services write the audit log and use this module.
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
