"""The Redis client of commands, admin pages and threads.

Relay workers have connections of their own for the hot path; this one is for everything that may
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

# The library's own default is ten tries with growing pauses: about a minute in front of a page.
RETRIES = 1
RETRY_PAUSE_S = 0.1


_given_up: Final[ContextVar[list[str] | None]] = ContextVar("given_up", default=None)
"""Why Redis is not asked any more; None where it is always asked."""


def client() -> Redis:
    """The client of this process; replies as bytes, safe to use from any thread.

    Raises:
        redis.exceptions.ConnectionError: Redis was given up.
    """
    if why := _given_up.get():
        raise ConnectionError(why[0])
    return _client(settings.RMB.redis.url)


@contextmanager
def may_be_given_up() -> Iterator[None]:
    """Let `give_up` hold until the end of this."""
    token = _given_up.set([])
    try:
        yield
    finally:
        _given_up.reset(token)


def give_up(why: str) -> None:
    """Ask Redis no more: each question to one that hangs takes ten seconds."""
    given_up = _given_up.get()
    if given_up is not None:
        given_up.append(why)


def disk_full(connection: Redis) -> str:
    """Why Redis refuses all writes for its disk (`MISCONF`), a full one for example; else empty.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    try:
        connection.setrange(keys.UNUSED, 0, "")  # nothing is written
    except ResponseError as error:
        return str(error) if str(error).startswith(DISK_FULL) else ""
    return ""


def text(reply: bytes | str) -> str:
    """A reply as text; bytes that are none are shown as such."""
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else reply


def number(value: bytes | str | None) -> float:
    """A stored figure; what is none reads as 0, so that one bad field does not take a page away."""
    try:
        found = float(value or 0)
    except ValueError:
        return 0.0
    return found if math.isfinite(found) else 0.0


@functools.lru_cache(maxsize=4)
def _client(url: str) -> Redis:
    return Redis.from_url(
        url,
        # Stated, because replies have another shape in the newer protocol.
        protocol=2,
        socket_timeout=COMMAND_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        retry=Retry(ConstantBackoff(RETRY_PAUSE_S), RETRIES),
    )


def open_async(url: str) -> AsyncRedis:
    """A client for an event loop, with the times of `client`; whoever opens it closes it."""
    return AsyncRedis.from_url(
        url,
        protocol=2,
        socket_timeout=COMMAND_TIMEOUT_S,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        retry=AsyncRetry(ConstantBackoff(RETRY_PAUSE_S), RETRIES),
    )
