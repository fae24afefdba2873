"""All queues that hold messages, found by a walk over the keys of Redis in bounded steps.

There is no index of queues: the hot path would have to keep it, and operators look now and then.
A walk over 20,000 queues takes some 100 ms in twenty steps, other clients being served between
them. Only the names and the page that is asked for stay in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from redis import Redis

from proto.rmb import address
from proto.rmb.address import SessionKey
from proto.rmb.errors import RmbError
from relay.access.errors import Invalid
from relay.ops import paging
from relay.ops.paging import Page
from relay.ops.redis_client import text
from relay.queues import headers, keys, scripts
from relay.sessions import published_rates
from relay.sessions.models import MAX_SID_CHARS

# Sessions were let in under whatever bound was configured then.
MAX_SID_BYTES: Final = 4 * MAX_SID_CHARS
STEP_KEYS: Final = 1000
MAX_STEPS: Final = 2000
"""Two million keys: above it a list is not complete, and a twin has to be named."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of one session, with at least one message.

    Attributes:
        key: `<twin>` or `<twin>:<sid>`.
        sid: None where the session has none, which is not the same as an empty one.
        size_bytes: of Redis' memory, estimated from a few of its entries.
        oldest_at, newest_at: unix times its first and last message were stored.
        newest: id of the last one.
        rate_in: messages a second that workers put into it, over the last `rates.WINDOW_S`.
        rate_out: the same, messages that left it for its session.
    """

    key: str
    twin: int
    sid: str | None
    connected: bool
    messages: int
    size_bytes: int
    oldest_at: float
    newest_at: float
    newest: str
    rate_in: float
    rate_out: float


_RATES: Final = ("rate_in", "rate_out")
ORDERS: Final = ("twin", "messages", "size", "oldest", "newest", *_RATES)
_Place = tuple[float, str]
"""Where a queue stands in an order: the value it is ordered by, and its key."""


def find(
    client: Redis,
    *,
    twin: int | None = None,
    connected: bool | None = None,
    order: str = "twin",
    limit: int = 100,
    cursor: str = "",
) -> Page[Queue]:
    """One page of the queues that hold messages.

    Args:
        client: replies as bytes.
        twin: those of one twin.
        connected: those whose session is connected, or is not.
        order: one of `ORDERS`, with a minus for the largest first; `-messages`: the fullest first.
        limit: items on the page.
        cursor: of the page before.

    Raises:
        Invalid: order, limit or cursor are none.
        redis.exceptions.RedisError: Redis does not answer.
    """
    name, descending = paging.one_of(order, ORDERS)
    wanted = paging.bounded(limit)
    after = paging.decode(cursor, order, float, str)
    places = _places(client, twin, connected, name, -1 if descending else 1)
    found = heapq.nsmallest(wanted + 1, (each for each in places if not after or each > after))
    page = found[:wanted]
    described = _describe(client, {key: parse(key) for _, key in page})
    return Page(list(described), paging.encode(order, *page[-1]) if len(found) > wanted else "")


def one(client: Redis, key: str) -> Queue | None:
    """The queue of one session; None where nothing waits.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return next(_describe(client, {key: parse(key)}), None)


def parse(key: str, field: str = "key") -> SessionKey:
    """A session key as operators name it, in a field of theirs.

    Raises:
        Invalid: it is none.
    """
    try:
        return address.parse(key, MAX_SID_BYTES)
    except RmbError as error:
        raise Invalid(fields={field: str(error)}) from None


class Extent(NamedTuple):
    """How many messages a queue holds, and the unix times its first and last were stored."""

    messages: int
    oldest_at: float
    newest_at: float


def extents(client: Redis) -> Iterator[Extent]:
    """Of each queue with messages.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    for _, value in _walk(client, None, None, "extent"):
        messages, oldest, newest = text(value).split(" ")
        yield Extent(int(messages), headers.stored_at(oldest), headers.stored_at(newest))


def _places(
    client: Redis, twin: int | None, connected: bool | None, order: str, sign: int
) -> Iterator[_Place]:
    """The place of each queue with messages in an order."""
    if order in _RATES:
        published = published_rates.read(client)
        for name, _ in _walk(client, twin, connected, "twin"):
            key = name.decode()
            yield sign * getattr(published.queue(key), order), key
        return
    for name, value in _walk(client, twin, connected, order):
        yield sign * _number(value), name.decode()


def _walk(
    client: Redis, twin: int | None, connected: bool | None, what: str
) -> Iterator[tuple[bytes, Any]]:
    """Each queue with messages and what `measure` says of it; one that comes or goes meanwhile may
    be met or not."""
    met: set[bytes] = set()  # a scan may name a key twice
    pattern = keys.stream("*" if twin is None else f"{twin}*")  # with a session id and without
    wanted = "" if connected is None else int(connected)
    cursor: Any = b"0"
    for _ in range(MAX_STEPS):
        arguments = (cursor, pattern, STEP_KEYS, what, wanted)
        reply: Any = client.eval(scripts.source("measure"), 1, keys.SESSIONS, *arguments)
        cursor, *found = reply
        for name, value in zip(found[::2], found[1::2], strict=True):
            if name not in met and _is_ours(name, twin):
                met.add(name)
                yield name, value
        if cursor == b"0":
            return


def _number(value: bytes | int) -> float:
    """A value of the script: a number, or the id of an entry, which is a time."""
    if isinstance(value, int):
        return float(value)
    return headers.stored_at(text(value)) if b"-" in value else float(value)


def _is_ours(name: bytes, twin: int | None) -> bool:
    """Whether a session is named so; foreign writers may name streams as they like."""
    try:
        key = address.parse(name.decode(), MAX_SID_BYTES)
    except (RmbError, UnicodeDecodeError):
        return False
    return twin in (None, key.twin)


def _describe(client: Redis, queues: Mapping[str, SessionKey]) -> Iterator[Queue]:
    if not queues:
        return
    names: list[str | bytes] = [keys.SESSIONS, *map(keys.stream, queues)]
    reply: Any = client.eval(scripts.source("describe"), len(names), *names, *queues)
    published = published_rates.read(client, queues)
    for at, (key, (twin, sid)) in enumerate(queues.items()):
        messages, size_bytes, first, last, connected = reply[5 * at : 5 * at + 5]
        if messages:
            yield Queue(
                key=key,
                twin=twin,
                sid=sid,
                connected=bool(connected),
                messages=messages,
                size_bytes=size_bytes,
                oldest_at=headers.stored_at(text(first)),
                newest_at=headers.stored_at(text(last)),
                newest=text(last),
                **published.queue(key)._asdict(),
            )
