"""Whether a relay has started just now: what it runs in the background may not be up yet."""

from __future__ import annotations

import socket

from redis import Redis

from relay.queues import keys


def begin(connection: Redis) -> None:
    """Say that a relay starts on this machine.

    Raises:
        redis.exceptions.RedisError: Redis does not answer, or takes nothing.
    """
    connection.set(keys.STARTING, socket.gethostname(), ex=keys.STARTING_S)


def is_starting(connection: Redis) -> bool:
    """Whether a relay started within `keys.STARTING_S`.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return bool(connection.exists(keys.STARTING))
