"""The latest of what the chain told, for pages: a stream in Redis, as long as an operator reads.

The follower adds to it what it has told the mirror and the workers, with the tip, in one
transaction. After a crash a block is told again, and its events stand here twice.
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
    """What happened."""

    CHANGED = "changed"
    """A twin was made or changed."""
    REVERTED = "reverted"
    """A fork was left: the twin is as it was before it, or is no more."""
    MISSED = "missed"
    """Blocks could not be looked at: any twin may have changed before this one."""


class Event(NamedTuple):
    """One of them.

    Attributes:
        entry: id in the stream.
        at: unix time it was told.
        twin: 0 for all.
    """

    entry: str
    at: float
    kind: str
    height: int
    twin: int


def note(pipe: Any, kind: Kind, told: Iterable[tuple[int, int]]) -> None:
    """Add events to a transaction.

    Args:
        told: twin and block of each.
    """
    for twin, height in list(told)[-MAX_KEPT:]:
        fields = {"kind": kind.value, "height": height, "twin": twin}
        pipe.xadd(keys.CHAIN_EVENTS, fields, maxlen=MAX_KEPT, approximate=True)


def latest(client: Redis, limit: int, before: str = "") -> list[Event]:
    """The latest events, the newest first.

    Args:
        client: replies as bytes.
        before: only those before this entry.

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
