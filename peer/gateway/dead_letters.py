"""Entries of the system lists that can't be read and whose owner can't be told.

They are kept in `msgbus.dead`, newest first, the last thousand of them; `rmb-peer --dead-letters`
shows them, so that the program that wrote them can be found.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from peer.gateway import keys
from peer.gateway.bounds import MAX_DEAD, MAX_DEAD_BYTES
from redispipe.resp import command

TIMEOUT_S: Final = 5.0
"""How long Redis may take to be read."""


class DeadLetter(NamedTuple):
    """An entry that could not be read."""

    at: float
    """Unix seconds."""
    queue: str
    """The list it was taken from."""
    reason: str
    body: bytes
    """Its beginning; see MAX_DEAD_BYTES."""


def keep(letter: DeadLetter) -> list[bytes]:
    """The commands that keep one, and drop the oldest above the bound."""
    # Latin-1 gives each byte a character, and each character back its byte.
    shown = letter.body[:MAX_DEAD_BYTES].decode("latin-1")
    body = json.dumps([letter.at, letter.queue, letter.reason, shown])
    return [
        command("LPUSH", keys.DEAD, body),
        command("LTRIM", keys.DEAD, 0, MAX_DEAD - 1),
    ]


async def read(redis_url: str, limit: int = MAX_DEAD) -> list[DeadLetter]:
    """What is kept, newest first.

    Raises:
        redis.RedisError: Redis can't be read.
    """
    # Not at the top: gateways write them another way, and it is half of what they would import.
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
