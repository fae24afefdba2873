"""Mail of twins that will not fetch it: what waits, and deleting it when the operator says so.

Mail of a banned or removed twin is kept as any other until it is too old: a ban may be a mistake.
Queues of a session that is connected are left alone; they are its business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from redis import Redis

from proto.rmb.reasons import MessageReason
from relay.queues import keys

SCAN_COUNT: Final = 1000
_PREFIX: Final = keys.stream("")


class Waiting(NamedTuple):
    """The queue of one session."""

    key: str
    """`<twin>` or `<twin>:<sid>`."""
    messages: int
    connected: bool


def waiting(client: Redis, twin: int) -> list[Waiting]:
    """The queues of a twin that hold messages, by their session.

    Args:
        client: replies as bytes.
        twin: its id.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    found = []
    for key in sorted(_queues(client, twin)):
        messages = client.xlen(keys.stream(key))
        if messages:
            found.append(Waiting(key, messages, client.hexists(keys.SESSIONS, key)))
    return found


def purge(client: Redis, twin: int) -> int:
    """Deletes what waits for a twin's sessions that are not connected, and counts it.

    Returns:
        How many messages there were.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    purged = 0
    for queue in waiting(client, twin):
        if queue.connected:
            continue
        with client.pipeline(transaction=True) as pipe:
            pipe.xlen(keys.stream(queue.key))
            pipe.unlink(keys.stream(queue.key), keys.share(queue.key))
            purged += pipe.execute()[0]
    if purged:
        client.incrby(keys.PURGED, purged)
    return purged


def figures(count: bytes | str | None) -> dict[str, float]:
    """The metric of what was deleted, from the value of `keys.PURGED`."""
    return {f'relay_messages_total{{reason="{MessageReason.PURGED}"}}': float(count or 0)}


def _queues(client: Redis, twin: int) -> Iterator[str]:
    if client.exists(keys.stream(str(twin))):
        yield str(twin)
    scanned: Iterator[Any] = client.scan_iter(keys.stream(f"{twin}:*"), count=SCAN_COUNT)
    for name in set(scanned):  # a scan may name a key twice
        yield name.removeprefix(_PREFIX).decode("utf-8", "surrogateescape")
