"""The newest events of the chain, for pages: a bounded stream in Redis.

The follower adds the events that it has passed to the mirror and the workers, together with the
tip, in one transaction. After a crash, the events of a block may appear twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, NamedTuple

from redis import Redis

from relay.ops.redis_client import number, text
from relay.queues import keys

MAX_KEPT: Final = 1000


class Kind(StrEnum):
    """Kind of an event."""

    CHANGED = "changed"
    """A twin was created or changed."""
    REVERTED = "reverted"
    """A fork was abandoned: the twin is as it was before the fork, or does not exist any more."""
    MISSED = "missed"
    """Blocks could not be read: any twin may have changed before this block."""


class Event(NamedTuple):
    """One event.

    Attributes:
        entry: id in the stream.
        at: unix time at which it was recorded.
        twin: id of the twin; 0 for all.
    """

    entry: str
    at: float
    kind: str
    height: int
    twin: int


def note(pipe: Any, kind: Kind, told: Iterable[tuple[int, int]]) -> None:
    """Add events to a transaction.

    Args:
        told: twin and block of each event.
    """
    for twin, height in list(told)[-MAX_KEPT:]:
        fields = {"kind": kind.value, "height": height, "twin": twin}
        pipe.xadd(keys.CHAIN_EVENTS, fields, maxlen=MAX_KEPT, approximate=True)


def latest(client: Redis, limit: int, before: str = "") -> list[Event]:
    """Return the newest events, the newest first.

    Args:
        client: Redis client that returns bytes.
        before: entry before which events are returned; empty for the newest.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    end = f"({before}" if before else "+"
    found: Any = client.xrevrange(keys.CHAIN_EVENTS, max=end, count=limit)
    return [_event(text(entry), fields) for entry, fields in found]


def _event(entry: str, fields: Any) -> Event:
    values = {text(name): text(value) for name, value in fields.items()}
    return Event(
        entry,
        number(entry.partition("-")[0]) / 1000,
        values.get("kind", ""),
        int(number(values.get("height"))),
        int(number(values.get("twin"))),
    )
