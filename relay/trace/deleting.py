"""Trace events of messages that an operator deletes, found before the messages are gone.

gone = deleting.look(client, key)     # empty, after one round trip, if no order is in force
...                                   # delete them
deleting.note(client, gone, here)
"""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Any, Final, NamedTuple

from redis import Redis
from redis.exceptions import RedisError

from proto.rmb import address
from relay.queues import headers, keys
from relay.queues.headers import MAX_TEXT_CHARS, Header
from relay.trace.bounds import KEPT_EVENTS, KEPT_S
from relay.trace.events import Event, Stage
from relay.trace.following import FIELD_PREFIX
from relay.trace.orders import Kind, Order, OrderError, decode
from relay.trace.tracer import FIELD

logger = logging.getLogger(__name__)

MAX_NOTED: Final = 1000
"""Most messages of one queue that are recorded for one order; further ones are not recorded."""


class Gone(NamedTuple):
    """A message that is about to be deleted, and the order that follows it."""

    order: Order
    header: Header


def look(client: Redis, key: str, up_to: str = "") -> list[Gone]:
    """Return the messages of a queue that orders follow.

    Args:
        client: Redis client that returns bytes.
        key: key of the queue's session.
        up_to: id of the last entry to read; empty for all.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    orders = _in_force(client)
    if not orders:
        return []
    left = dict.fromkeys(orders, MAX_NOTED)
    found = []
    for page in headers.read_all(client, key, up_to=up_to or "+"):
        for header in page:
            for order in orders:
                if left[order] and _is_about(order, header) and order.samples(header.uid):
                    left[order] -= 1
                    found.append(Gone(order, header))
        if not any(left.values()):
            break
    return found


def note(client: Redis, gone: list[Gone], here: str) -> None:
    """Record that messages were deleted. A failure to write is only logged.

    Args:
        client: same client as for `look`.
        gone: messages that `look` returned.
        here: name of this relay.
    """
    if not gone:
        return
    now, by = time.time(), f"operators {socket.gethostname()}/{os.getpid()}"
    try:
        with client.pipeline(transaction=True) as pipe:
            for order, header in gone:
                event = Event(
                    now, by, here, Stage.PURGED, header.uid, header.source, header.destination,
                    header.size_bytes, header.kind, reason="purged", entry=header.entry,
                )  # fmt: skip
                name = keys.trace(order.id)
                pipe.xadd(name, {FIELD: event.encode()}, maxlen=KEPT_EVENTS, approximate=True)
                pipe.hincrby(keys.trace_figures(order.id), "events", 1)
            for order_id in {order.id for order, _ in gone}:
                pipe.expire(keys.trace(order_id), KEPT_S)
                pipe.expire(keys.trace_figures(order_id), KEPT_S)
            pipe.execute()
    except RedisError as error:
        logger.warning("no trace of what was deleted: %s", error)


def _in_force(client: Redis) -> list[Order]:
    found = []
    fields: Any = client.hgetall(keys.CONTROL)
    for name, text in fields.items():
        if name.startswith(FIELD_PREFIX.encode()):
            try:
                order = decode(name.decode().removeprefix(FIELD_PREFIX), text.decode())
            except (OrderError, UnicodeDecodeError):
                continue  # workers log it
            if order.until > time.time():
                found.append(order)
    return found


def _is_about(order: Order, header: Header) -> bool:
    if header.problem:
        return False
    if order.kind is Kind.UID:
        return header.uid == order.subject[:MAX_TEXT_CHARS]
    ends = (header.source, header.destination)
    if order.kind is Kind.SESSION:
        return address.format(order.key) in ends
    twin = str(order.key[0])
    return any(end.partition(":")[0] == twin for end in ends)
