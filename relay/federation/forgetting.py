"""Removal of relays that no longer exist, so that the number of known relays has a bound.

Twins name their relays freely. Each name that a message was for leaves a state, counts and a row
behind, and names at which no relay ever answered would outnumber the real ones. A relay that an
operator has decided about or written a note on is kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from django.db import Error as DatabaseError
from redis import Redis

from relay.federation import counters
from relay.federation.models import RelayNode
from relay.ops.redis_client import number, text
from relay.queues import keys

logger = logging.getLogger(__name__)

UNANSWERED_S: Final = 7 * 86_400.0
"""Seconds since the last attempt after which a relay that never answered is forgotten."""
ANSWERED_S: Final = 90 * 86_400.0
"""Seconds since the last attempt or message after which a relay that has answered is forgotten."""
EVERY_S: Final = 3_600.0
AT_ONCE: Final = 500
"""Number of relays examined together."""

_FIELDS: Final = ("last_failure", "last_success", "heard")


class Forgetting:
    """Forgets such relays, once every `EVERY_S`.

    Args:
        clock: monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next_at = float("-inf")

    def look(self, client: Redis, now: float) -> int:
        """Forget relays that no longer exist, if it is time.

        Args:
            client: connection whose replies are bytes.
            now: unix seconds.

        Returns:
            Number of relays forgotten.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        if self._clock() < self._next_at:
            return 0
        self._next_at = self._clock() + EVERY_S
        try:
            found = forget(client, now)
        except DatabaseError as error:
            logger.warning("relays that are gone are not forgotten for now: %s", error)
            return 0
        if found:
            logger.info("%d relays that are gone are forgotten", found)
        return found


def forget(client: Redis, now: float) -> int:
    """Forget relays that no longer exist, and return their number; see `Forgetting.look`."""
    domains = [text(each) for each in client.sscan_iter(keys.PARTNERS, count=AT_ONCE)]
    return sum(
        _forget_of(client, domains[first : first + AT_ONCE], now)
        for first in range(0, len(domains), AT_ONCE)
    )


def _forget_of(client: Redis, domains: list[str], now: float) -> int:
    with client.pipeline(transaction=False) as pipe:
        for domain in domains:
            pipe.hmget(keys.partner(domain), _FIELDS)
        states = pipe.execute()
    gone = {domain for domain, state in zip(domains, states, strict=True) if _is_gone(state, now)}
    rows = RelayNode.objects.filter(domain__in=gone)
    undecided = rows.filter(trusted=False, paused=False, blocked=False, note="")
    forgotten = list(undecided.values_list("domain", flat=True))
    undecided.delete()
    forgotten += gone.difference(rows.values_list("domain", flat=True), forgotten)
    with client.pipeline(transaction=True) as pipe:
        for domain in forgotten:
            pipe.srem(keys.PARTNERS, domain)
            pipe.delete(keys.partner(domain), keys.failures(domain))
            counts = (counters.SUCCESS, counters.ERROR)
            pipe.hdel(keys.FEDERATION_COUNTERS, *(counters.field(name, domain) for name in counts))
        pipe.execute()
    return len(forgotten)


def _is_gone(state: list[bytes | None], now: float) -> bool:
    failed_at, *answered_at = map(number, state)
    last = max(failed_at, *answered_at)
    return 0 < last < now - (ANSWERED_S if any(answered_at) else UNANSWERED_S)
