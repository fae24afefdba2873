"""Whether a relay has just started: its background work may not be up yet."""

from __future__ import annotations

import socket

from redis import Redis

from relay.queues import keys


def begin(connection: Redis) -> None:
    """Record that a relay starts on this machine.

    Raises:
        redis.exceptions.RedisError: Redis does not answer, or accepts no writes.
    """
    connection.set(keys.STARTING, socket.gethostname(), ex=keys.STARTING_S)


def is_starting(connection: Redis) -> bool:
    """Check whether a relay started within the last `keys.STARTING_S` seconds.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return bool(connection.exists(keys.STARTING))
