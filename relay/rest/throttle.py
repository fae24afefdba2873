"""Limits on the requests of one caller, and on the failed sign-ins of one address.

Both are counted in Redis in windows of a minute, over all processes of the site. Without Redis
nothing is counted: the API then only reads the database, and a token cannot be guessed anyway.
"""

from __future__ import annotations

import hashlib
import logging
import time

from django.conf import settings
from redis.exceptions import RedisError

from proto.limits.addresses import place_of
from relay.ops.redis_client import client
from relay.rest.bounds import WINDOW_S
from relay.rest.problem import Refusal

logger = logging.getLogger(__name__)


def count_request(caller: str) -> None:
    """Count one request of a token or session.

    Args:
        caller: unique name of the token or session; only its hash is stored.

    Raises:
        Refusal: the limit of the window is exceeded.
    """
    limit = settings.RMB.rest.requests_per_minute
    if limit and _add(f"relay:rest:rate:{_hash(caller)}") > limit:
        raise _too_many(f"more than {limit} requests in a minute")


def count_failure(address: str) -> None:
    """Count a wrong token from an address, or from its /64 if it is IPv6.

    Raises:
        Refusal: there were too many.
    """
    limit = settings.RMB.rest.failures_per_minute
    if _add(f"relay:rest:failed:{_hash(place_of(address))}") > limit > 0:
        raise _too_many(f"more than {limit} failed sign-ins in a minute from this address")


def _add(name: str) -> int:
    key = f"{name}:{int(time.time()) // WINDOW_S}"
    try:
        with client().pipeline(transaction=False) as pipe:
            pipe.incr(key)
            pipe.expire(key, 2 * WINDOW_S)
            return int(pipe.execute()[0])
    except RedisError as error:
        logger.warning("requests are not counted: %s", error)
        return 0


def _too_many(detail: str) -> Refusal:
    left_s = WINDOW_S - int(time.time()) % WINDOW_S
    return Refusal(429, detail, headers={"Retry-After": str(left_s)})


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
