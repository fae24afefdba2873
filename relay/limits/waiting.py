"""What waits for a twin and what of it waits elsewhere, beside its bounds, as operators see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.limits.models import TwinLimit
from relay.ops.redis_client import client
from relay.queues import keys
from relay.queues.charging import FIELDS, Held, TwinBounds


@dataclass(frozen=True, slots=True)
class Waiting:
    """Of one twin.

    Attributes:
        received: what waits for its sessions.
        sent: what of it waits in all queues.
        bounds: of either.
        filled_percent: of the bound that is filled most.
    """

    received: Held
    sent: Held
    bounds: TwinBounds
    filled_percent: float


def of_twin(twin: int) -> Waiting:
    """What is charged to one twin now. Sessions that read are not: nothing waits for them.

    Raises:
        Away: Redis does not answer.
    """
    try:
        with client().pipeline(transaction=True) as pipe:
            for name in (keys.received(twin), keys.sent(twin)):
                pipe.hmget(name, *FIELDS)
            replies: list[list[Any]] = pipe.execute()
    except RedisError as error:
        raise Away("Redis does not answer") from error
    received, sent = map(Held.parse, replies)
    bounds = bounds_of(TwinLimit.objects.filter(twin=twin).first())
    return Waiting(
        received, sent, bounds, max(each.filled_percent(bounds) for each in (received, sent))
    )


def bounds_of(limit: TwinLimit | None) -> TwinBounds:
    """The bounds of a twin with these decisions."""
    queue = settings.RMB.queue
    messages, size_bytes, queues = limit.waiting if limit is not None else (None, None, None)
    return TwinBounds(
        messages or queue.twin_messages,
        size_bytes or queue.twin_bytes,
        queues or queue.twin_queues,
        queue.unknown_queues,
    )
