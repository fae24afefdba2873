"""The twins with the most messages, and those refused most often."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import Final, NamedTuple

from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.limits import hits
from relay.limits.hits import TwinHits
from relay.ops.redis_client import client
from relay.sessions import published_rates

SHOWN: Final = 5


class Busy(NamedTuple):
    """A twin and its messages per second, in and out, over the last `rates.WINDOW_S` seconds."""

    twin: int
    rate: float


class Top(NamedTuple):
    """Both lists, each in descending order."""

    busiest: Sequence[Busy]
    refused: Sequence[TwinHits]


def look() -> Top:
    """Return both lists.

    Raises:
        Away: a store does not answer.
    """
    try:
        flows = published_rates.read(client()).twins()
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    rates = ((flow.both, -twin) for twin, flow in flows.items())
    busiest = [Busy(-twin, rate) for rate, twin in nlargest(SHOWN, rates)]
    return Top(busiest, hits.top(SHOWN).twins)
