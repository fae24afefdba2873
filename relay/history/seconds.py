"""The seconds of the last hour: a stream in Redis with one entry for each second, about 1 MiB.

    relay:history:1s    <unix second>-0    v: values (`relay.history.packing`)

The second is read from Redis' clock and used as the entry's id. A stream accepts only ids above all
earlier ones: of several operator sites one writes each second and the others are refused, so no
lease is needed. After the clock was set back, every second would be refused until it has caught up;
therefore the seconds that are then in the future are dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from redis import Redis
from redis.exceptions import ResponseError

from relay.history.packing import Values, pack, unpack
from relay.ops.redis_client import text
from relay.queues import keys

KEPT_S: Final = 3600 + 120
"""Number of seconds kept: an hour, and the time by which a roll-up may be late."""
AHEAD_S: Final = 10
"""Seconds by which an entry must at least be ahead to show that the clock was set back."""

_FIELD: Final = "v"


def put(client: Redis, second: int, values: Values) -> bool:
    """Write a second.

    Returns:
        Whether it was written: False if another site has written it already.

    Raises:
        redis.exceptions.RedisError: Redis does not answer, or refuses for another reason.
    """
    try:
        client.xadd(
            keys.HISTORY,
            {_FIELD: pack(values)},
            id=f"{second}-0",
            maxlen=KEPT_S,
            approximate=False,
        )
    except ResponseError as error:
        if "equal or smaller" not in str(error):
            raise
        return False
    return True


def newest(client: Redis) -> int | None:
    """Return the last second written; None before the first."""
    entries: Any = client.xrevrange(keys.HISTORY, count=1)
    return _second(entries[0][0]) if entries else None


def read(
    client: Redis, first: int, last: int, wanted: Collection[str] | None = None
) -> list[tuple[int, Values]]:
    """Return the existing seconds from one to another, both included.

    Args:
        client: client that returns replies as bytes.
        first, last: unix seconds.
        wanted: keys of series; None for all.
    """
    entries: Any = client.xrange(keys.HISTORY, f"{max(0, first)}-0", f"{max(0, last)}-0")
    return [
        (_second(entry_id), unpack(fields[_FIELD.encode()], wanted)) for entry_id, fields in entries
    ]


def clock_was_set_back(client: Redis, now: int) -> int:
    """Drop seconds that are in the future, so that the present can be written.

    A stream remembers the highest id it ever had, so it is deleted and created again.

    Returns:
        Number of seconds dropped.
    """
    entries: Any = client.xrange(keys.HISTORY)
    kept = [(entry_id, fields) for entry_id, fields in entries if _second(entry_id) < now]
    with client.pipeline() as pipe:
        pipe.delete(keys.HISTORY)
        for entry_id, fields in kept:
            pipe.xadd(keys.HISTORY, fields, id=entry_id)
        pipe.execute()
    return len(entries) - len(kept)


def _second(entry_id: bytes | str) -> int:
    return int(text(entry_id).partition("-")[0])
