"""Mail of sessions that will not fetch it: what waits, and deleting it when the operator says so.

Mail of a banned or removed twin is kept as any other until it is too old: a ban may be a mistake.
Queues of a session that is connected are left alone; they are its business.
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
    """The session is connected: its queue is its own business."""


class Waiting(NamedTuple):
    """The queue of one session."""

    key: str
    """`<twin>` or `<twin>:<sid>`."""
    messages: int
    connected: bool
    newest: str
    """Id of the last one."""


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
        # Counted and named at once: what comes meanwhile is neither.
        with client.pipeline(transaction=True) as pipe:
            pipe.xlen(keys.stream(key))
            pipe.xrevrange(keys.stream(key), count=1)
            pipe.hexists(keys.SESSIONS, key)
            messages, last, connected = pipe.execute()
        if messages:
            found.append(Waiting(key, messages, connected, text(last[0][0])))
    return found


def purge(client: Redis, key: str, up_to: str = "") -> int:
    """Deletes what waits for a session, and counts it.

    Args:
        client: replies as bytes.
        key: of the session.
        up_to: id of the last entry that goes; empty for all.

    Returns:
        How many messages there were.

    Raises:
        Connected: the session is connected, and nothing was deleted.
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
    """Deletes what `waiting` found for sessions that are not connected, and counts it.

    What has come since stays.

    Returns:
        How many messages there were.

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
    """The metric of what was deleted, from the value of `keys.PURGED`."""
    return {f'relay_messages_total{{reason="{MessageReason.PURGED}"}}': float(count or 0)}


def _queues(client: Redis, twin: int) -> Iterator[str]:
    if client.exists(keys.stream(str(twin))):
        yield str(twin)
    scanned: Iterator[Any] = client.scan_iter(keys.stream(f"{twin}:*"), count=SCAN_COUNT)
    for name in set(scanned):  # a scan may name a key twice
        try:
            yield name.removeprefix(_PREFIX).decode()
        except UnicodeDecodeError:
            continue  # no session of ours is named so
