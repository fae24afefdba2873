"""Messages that wait for a twin, or from it in other queues, with its bounds, for operators."""

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
    """What waits for one twin and from it.

    Attributes:
        received: what waits for its sessions.
        sent: what it sent that waits in any queue.
        bounds: bounds that apply to each of the two.
        filled_percent: share of the bound that is filled most, in percent.
    """

    received: Held
    sent: Held
    bounds: TwinBounds
    filled_percent: float


def of_twin(twin: int) -> Waiting:
    """Return what waits for one twin and from it now; nothing waits for sessions that read.

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
    """Return the bounds of a twin, given its row."""
    queue = settings.RMB.queue
    messages, size_bytes, queues = limit.waiting if limit is not None else (None, None, None)
    return TwinBounds(
        messages or queue.twin_messages,
        size_bytes or queue.twin_bytes,
        queues or queue.twin_queues,
        queue.unknown_queues,
    )
