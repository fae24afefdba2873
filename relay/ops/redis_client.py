"""The Redis client of commands, admin pages and threads.

Relay workers have separate connections for the hot path; this client is for everything that may
wait, and it fails after seconds instead of waiting for ever.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from django.conf import settings
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError, ResponseError
from redis.retry import Retry

from redispipe.pipe import DISK_FULL
from relay.queues import keys

COMMAND_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 2.0

# The library's default is ten attempts with growing pauses, which delays a page by about a minute.
RETRIES = 1
RETRY_PAUSE_S = 0.1


_given_up: Final[ContextVar[list[str] | None]] = ContextVar("given_up", default=None)
"""Reason why Redis was given up, or an empty list; None outside of `may_be_given_up`."""


def client() -> Redis:
    """Return the client of this process, which returns bytes and is safe to use from any thread.

    Raises:
        redis.exceptions.ConnectionError: Redis was given up.
    """
    if why := _given_up.get():
        raise ConnectionError(why[0])
    return _client(settings.RMB.redis.url)


@contextmanager
def may_be_given_up() -> Iterator[None]:
    """Let `give_up` take effect until the end of this block."""
    token = _given_up.set([])
    try:
        yield
    finally:
        _given_up.reset(token)


def give_up(why: str) -> None:
    """Stop using Redis: each command to a server that hangs takes ten seconds."""
    given_up = _given_up.get()
    if given_up is not None:
        given_up.append(why)


def disk_full(connection: Redis) -> str:
    """Return why Redis refuses all writes because of its disk (`MISCONF`); empty if it does not.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    try:
        connection.setrange(keys.UNUSED, 0, "")  # nothing is written
    except ResponseError as error:
        return str(error) if str(error).startswith(DISK_FULL) else ""
    return ""


def text(reply: bytes | str) -> str:
    """Return a reply as text; invalid bytes are replaced."""
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply


def number(value: bytes | str | None) -> float:
    """Return a stored figure; 0 for an invalid one, so that one bad field does not break a page."""
    try:
        found = float(value or 0)
    except ValueError:
        return 0.0
    return found if math.isfinite(found) else 0.0


@functools.lru_cache(maxsize=4)
def _client(url: str) -> Redis:
    return Redis.from_url(
        url,
        # Explicit, because replies have another shape in the newer protocol.
        protocol=2,
        socket_timeout=COMMAND_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        retry=Retry(ConstantBackoff(RETRY_PAUSE_S), RETRIES),
    )


def open_async(url: str) -> AsyncRedis:
    """Open a client for an event loop, with the time-outs of `client`; the caller closes it."""
    return AsyncRedis.from_url(
        url,
        protocol=2,
        socket_timeout=COMMAND_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        retry=AsyncRetry(ConstantBackoff(RETRY_PAUSE_S), RETRIES),
    )
