"""Whether a relay has started just now: what it runs in the background may not be up yet."""

from __future__ import annotations

import socket
from typing import Final

from redis import Redis

from relay.queues import keys

START_S: Final = 120
"""From the preparation of a relay until everything that it runs is up, on a busy machine."""


def begin(connection: Redis) -> None:
    """Say that a relay starts on this machine.

    Raises:
        redis.exceptions.RedisError: Redis does not answer, or takes nothing.
    """
    connection.set(keys.STARTING, socket.gethostname(), ex=START_S)


def is_starting(connection: Redis) -> bool:
    """Whether a relay started within `START_S`.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return bool(connection.exists(keys.STARTING))
