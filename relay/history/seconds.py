"""The seconds of the last hour: a stream in Redis, one entry for each second, about 1 MiB.

    relay:history:1s    <unix second>-0    v: values (`relay.history.packing`)

The second is that of Redis' clock, and it is the entry's id. A stream takes no id that is not above
all before it: of several operator sites one writes each second and the others are refused, so that
nobody needs a lease. After the clock was set back every second would be refused for as long as it
was set back; the seconds that lie in the future then are dropped.
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
"""An hour, and what a roll-up may come late."""
AHEAD_S: Final = 10
"""An entry further ahead than this is of a clock that was set back since."""

_FIELD: Final = "v"


def put(client: Redis, second: int, values: Values) -> bool:
    """Writes a second.

    Returns:
        Whether it was written: False, somebody else did.

    Raises:
        redis.exceptions.RedisError: Redis does not answer, or refuses otherwise.
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
    """The last second that was written; None before the first."""
    entries: Any = client.xrevrange(keys.HISTORY, count=1)
    return _second(entries[0][0]) if entries else None


def read(
    client: Redis, first: int, last: int, wanted: Collection[str] | None = None
) -> list[tuple[int, Values]]:
    """The seconds from one to another, both included, that there are.

    Args:
        client: replies as bytes.
        first, last: unix seconds.
        wanted: keys of series; all of them unless given.
    """
    entries: Any = client.xrange(keys.HISTORY, f"{max(0, first)}-0", f"{max(0, last)}-0")
    return [
        (_second(entry_id), unpack(fields[_FIELD.encode()], wanted)) for entry_id, fields in entries
    ]


def clock_was_set_back(client: Redis, now: int) -> int:
    """Drops seconds that lie in the future, so that those of now can be written.

    A stream remembers the highest id it ever had, so it is made anew.

    Returns:
        How many they were.
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
