"""Dead letters: unreadable entries of the system lists whose owner cannot be notified.

The newest thousand are kept in `msgbus.dead`, newest first. `rmb-peer --dead-letters` shows them,
so that the program that wrote them can be found.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from peer.gateway import keys
from peer.gateway.bounds import MAX_DEAD, MAX_DEAD_BYTES
from redispipe.resp import command

TIMEOUT_S: Final = 5.0
"""Time-out for reading from Redis, in seconds."""


class DeadLetter(NamedTuple):
    """An unreadable entry."""

    at: float
    """Unix time in seconds."""
    queue: str
    """List from which the entry was taken."""
    reason: str
    body: bytes
    """Beginning of the entry; see MAX_DEAD_BYTES."""


def keep(letter: DeadLetter) -> list[bytes]:
    """Return the commands that keep a dead letter, and drop the oldest above the limit."""
    # Latin-1 maps each byte to a character and back.
    shown = letter.body[:MAX_DEAD_BYTES].decode("latin-1")
    body = json.dumps([letter.at, letter.queue, letter.reason, shown])
    return [
        command("LPUSH", keys.DEAD, body),
        command("LTRIM", keys.DEAD, 0, MAX_DEAD - 1),
    ]


async def read(redis_url: str, limit: int = MAX_DEAD) -> list[DeadLetter]:
    """Read the dead letters, newest first.

    Raises:
        redis.RedisError: Redis cannot be read.
    """
    # Imported here: gateways do not need this package, which would double their imports.
    from redis.asyncio import Redis

    client = Redis.from_url(redis_url, socket_timeout=TIMEOUT_S, retry=None)
    try:
        found: list[bytes] = await client.lrange(keys.DEAD.decode(), 0, limit - 1)  # type: ignore[assignment]
    finally:
        await client.aclose()
    return [_letter(body) for body in found]


def _letter(body: bytes) -> DeadLetter:
    at, queue, reason, shown = json.loads(body)
    return DeadLetter(at, queue, reason, shown.encode("latin-1"))
