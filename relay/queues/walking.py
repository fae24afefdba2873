"""All queues that hold messages, found by walking over the keys of Redis in bounded steps.

There is no index of queues: the hot path would have to maintain it, and operators only look now and
then. A walk over 20,000 queues takes about 100 ms in twenty steps, and Redis serves other clients
between them. Only the names and the requested page are held in memory.
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

# Not the configured bound: existing sessions were admitted under whatever bound applied then.
MAX_SID_BYTES: Final = 4 * MAX_SID_CHARS
STEP_KEYS: Final = 1000
MAX_STEPS: Final = 2000
"""Maximum number of steps of a walk: two million keys. With more, a list is not complete, and a
twin has to be named."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue of one session, with at least one message.

    Attributes:
        key: `<twin>` or `<twin>:<sid>`.
        sid: Session id; None if the session has none, which differs from an empty one.
        size_bytes: Memory in Redis, estimated from a few of its entries.
        oldest_at, newest_at: Unix times at which its first and last message were stored.
        newest: Id of the last message.
        rate_in: Messages per second that workers put into it, over the last `rates.WINDOW_S`.
        rate_out: Messages per second that were delivered to its session, over the same time.
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
"""Position of a queue in an order: the value it is ordered by, and its key."""


def find(
    client: Redis,
    *,
    twin: int | None = None,
    connected: bool | None = None,
    order: str = "twin",
    limit: int = 100,
    cursor: str = "",
) -> Page[Queue]:
    """Return one page of the queues that hold messages.

    Args:
        client: Redis client that returns replies as bytes.
        twin: Id of the twin whose queues are wanted; None: all.
        connected: Whether the session must be connected, or must not be; None: either.
        order: One of `ORDERS`, with a minus sign for the largest first; `-messages`: the fullest
            first.
        limit: Number of items on the page.
        cursor: Cursor of the previous page.

    Raises:
        Invalid: Order, limit or cursor are not valid.
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
    """Return the queue of one session; None if it holds no messages.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return next(_describe(client, {key: parse(key)}), None)


def parse(key: str, field: str = "key") -> SessionKey:
    """Parse a session key that an operator entered; `field` is the input field it came from.

    Raises:
        Invalid: The text is not a session key.
    """
    try:
        return address.parse(key, MAX_SID_BYTES)
    except RmbError as error:
        raise Invalid(fields={field: str(error)}) from None


class Extent(NamedTuple):
    """Number of messages in a queue, and the Unix times at which its first and last were stored."""

    messages: int
    oldest_at: float
    newest_at: float


def extents(client: Redis) -> Iterator[Extent]:
    """Yield the extent of each queue with messages.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    for _, value in _walk(client, None, None, "extent"):
        messages, oldest, newest = text(value).split(" ")
        yield Extent(int(messages), headers.stored_at(oldest), headers.stored_at(newest))


def _places(
    client: Redis, twin: int | None, connected: bool | None, order: str, sign: int
) -> Iterator[_Place]:
    """Yield the position of each queue with messages in an order."""
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
    """Yield each queue with messages and its value from the `measure` script.

    A queue that appears or disappears during the walk may be found or not.
    """
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
    """Convert a value of the script: a number, or the id of an entry, which contains a time."""
    if isinstance(value, int):
        return float(value)
    return headers.stored_at(text(value)) if b"-" in value else float(value)


def _is_ours(name: bytes, twin: int | None) -> bool:
    """Check whether a stream name is that of a session; other programs may name streams freely."""
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
