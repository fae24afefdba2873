"""Deleting the queues of sessions that will not fetch them, when the operator asks for it.

The queues of a banned or removed twin are kept like any others until their messages are too old: a
ban may be a mistake. Queues of connected sessions are not touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from django.conf import settings
from redis import Redis

from proto.rmb.reasons import MessageReason
from relay.analytics import deleted
from relay.ops.redis_client import text
from relay.queues import charging, headers, keys, scripts
from relay.trace import deleting

SCAN_COUNT: Final = 1000
_PREFIX: Final = keys.stream("")


class Connected(Exception):
    """The session is connected: its queue is not touched."""


class Waiting(NamedTuple):
    """The queue of one session."""

    key: str
    """`<twin>` or `<twin>:<sid>`."""
    messages: int
    connected: bool
    newest: str
    """Id of the last message."""


def waiting(client: Redis, twin: int) -> list[Waiting]:
    """Return the queues of a twin that hold messages, by session.

    Args:
        client: Redis client that returns replies as bytes.
        twin: Id of the twin.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    found = []
    for key in sorted(_queues(client, twin)):
        # In one transaction, so that the count matches the last entry.
        with client.pipeline(transaction=True) as pipe:
            pipe.xlen(keys.stream(key))
            pipe.xrevrange(keys.stream(key), count=1)
            pipe.hexists(keys.SESSIONS, key)
            messages, last, connected = pipe.execute()
        if messages:
            found.append(Waiting(key, messages, connected, text(last[0][0])))
    return found


def purge(client: Redis, key: str, up_to: str = "") -> int:
    """Delete the queue of a session, and return how many messages it held.

    Args:
        client: Redis client that returns replies as bytes.
        key: Key of the session.
        up_to: Id of the last entry to delete; empty for all.

    Returns:
        Number of deleted messages.

    Raises:
        Connected: The session is connected, and nothing was deleted.
        redis.exceptions.RedisError: Redis does not answer.
    """
    names = (keys.stream(key), keys.SESSIONS, keys.PURGED)
    gone = deleted.look(client, key, up_to)
    if gone is not None:
        up_to = gone.up_to
    stays = headers.following(up_to) if up_to else ""
    followed = deleting.look(client, key, up_to)
    with client.pipeline(transaction=True) as pipe:
        pipe.eval(scripts.source("purge"), len(names), *names, key, stays)
        pipe.eval(*charging.script("settle", 2 * settings.RMB.queue.retention_s, [key]))
        reply, _ = pipe.execute()
    if reply < 0:
        raise Connected(key)
    deleted.note(gone)
    deleting.note(client, followed, next(iter(settings.RMB.relay.domains), ""))
    return int(reply)


def purge_queues(client: Redis, queues: Iterable[Waiting]) -> int:
    """Delete what `waiting` found for sessions that are not connected.

    Messages that have arrived since then stay.

    Returns:
        Number of deleted messages.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    purged = 0
    for queue in queues:
        try:
            purged += purge(client, queue.key, queue.newest)
        except Connected:
            continue
    return purged


def figures(count: bytes | str | None) -> dict[str, float]:
    """Return the metric of deleted messages, from the value of `keys.PURGED`."""
    return {f'relay_messages_total{{reason="{MessageReason.PURGED}"}}': float(count or 0)}


def _queues(client: Redis, twin: int) -> Iterator[str]:
    if client.exists(keys.stream(str(twin))):
        yield str(twin)
    scanned: Iterator[Any] = client.scan_iter(keys.stream(f"{twin}:*"), count=SCAN_COUNT)
    for name in set(scanned):  # a scan may name a key twice
        try:
            yield name.removeprefix(_PREFIX).decode()
        except UnicodeDecodeError:
            continue  # not the name of a session of this relay
