"""Connections that carry sessions on streams, as operators list them.

Workers publish them every 2 s (`relay.mux.report`); this module reads the reports of workers that
have a heartbeat.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, get_type_hints

from redis.exceptions import RedisError

from relay.access.errors import Away, NotFound
from relay.mux.report import ConnectionFigures, StreamFigures
from relay.ops import paging
from relay.ops.paging import Page
from relay.ops.redis_client import client, text
from relay.queues import keys
from relay.sessions.models import moment

_ORDERS: Final[dict[str, Callable[[Connection], float]]] = {
    "opened": lambda each: each.opened_at.timestamp(),
    "streams": lambda each: each.streams,
    "sessions": lambda each: each.sessions,
    "queued_bytes": lambda each: each.queued_bytes,
    "held_bytes": lambda each: each.held_bytes,
    "unsent_bytes": lambda each: each.unsent_bytes,
    "stalls": lambda each: each.stalls,
    "bytes_in": lambda each: each.bytes_in,
    "bytes_out": lambda each: each.bytes_out,
}
ORDERS: Final = tuple(_ORDERS)
MAX_TOLD: Final = 5
"""Maximum number of connections that an error message names."""
_STREAM_ORDERS: Final[dict[str, Callable[[Stream], float]]] = {
    "id": lambda each: each.id,
    "credit": lambda each: each.credit,
    "queued_bytes": lambda each: each.queued_bytes,
    "held_bytes": lambda each: each.held_bytes,
}
STREAM_ORDERS: Final = tuple(_STREAM_ORDERS)


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection that is open now; its figures are those of `ConnectionFigures`.

    Attributes:
        id: id, as `<worker>/<number>`.
        worker: boot id of the worker that serves it.
    """

    id: str
    worker: str
    number: int
    address: str
    user_agent: str
    opened_at: datetime
    streams: int
    sessions: int
    queued_bytes: int
    held_bytes: int
    unsent_bytes: int
    stalls: int
    bytes_in: int
    bytes_out: int


Stream = StreamFigures


def live(
    *,
    worker: str = "",
    address: str = "",
    order: str = "-streams",
    limit: int = 100,
    cursor: str = "",
) -> Page[Connection]:
    """Return one page of the connections that are open now.

    Args:
        worker: boot id of a worker, to list its connections only.
        address: address of clients, with or without the port.
        order: one of `ORDERS`, with a minus for the largest or newest first.

    Raises:
        Invalid: order, limit or cursor is invalid.
        Away: Redis does not answer.
    """
    value = _ORDERS[paging.one_of(order, ORDERS)[0]]
    found = [each for each in _read(worker) if not address or _is_from(each.address, address)]
    return paging.page_of(found, lambda each: (value(each), each.id), order, limit, cursor)


def get(worker: str, number: int) -> Connection:
    """Return one open connection.

    Raises:
        NotFound: there is no such connection.
        Away: Redis does not answer.
    """
    for each in _read(worker):
        if each.number == number:
            return each
    raise NotFound(f"there is no connection {worker}/{number}")


def streams(
    worker: str,
    number: int,
    *,
    stream: int | None = None,
    order: str = "-queued_bytes",
    limit: int = 100,
    cursor: str = "",
) -> Page[Stream]:
    """Return one page of the streams that a worker describes of a connection.

    Args:
        stream: id of a stream, to list only this one.
        order: one of `STREAM_ORDERS`, with a minus for the largest first.

    Raises:
        Invalid: order, limit or cursor is invalid.
        Away: Redis does not answer.
    """
    value = _STREAM_ORDERS[paging.one_of(order, STREAM_ORDERS)[0]]
    document = _document(keys.streams(worker))
    rows = document.get(str(number), []) if isinstance(document, dict) else []
    found = [each for each in _figures(StreamFigures, rows) if stream is None or each.id == stream]
    return paging.page_of(found, lambda each: (value(each), f"{each.id:020}"), order, limit, cursor)


def _read(worker: str) -> list[Connection]:
    try:
        boots = [worker] if worker else sorted(map(text, _members()))
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    return [
        _connection(boot, each)
        for boot in boots
        for each in _figures(ConnectionFigures, _document(keys.connections(boot)))
    ]


def _members() -> Any:
    return client().smembers(keys.WORKERS)


def _document(name: str) -> Any:
    """Return the JSON value of a string in Redis; None if it is not JSON."""
    try:
        value: Any = client().get(name)
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    try:
        return json.loads(value or b"null")
    except (ValueError, RecursionError):
        return None


def _figures(kind: Any, rows: Any) -> list[Any]:
    """Return the rows of a report; rows in the form of another release are skipped."""
    types = list(get_type_hints(kind).values())
    return [kind(*row) for row in rows if _fits(row, types)] if isinstance(rows, list) else []


def _fits(row: Any, types: list[type]) -> bool:
    return (
        isinstance(row, list)
        and len(row) == len(types)
        and all(isinstance(value, each) for value, each in zip(row, types, strict=True))
    )


def _connection(worker: str, figures: ConnectionFigures) -> Connection:
    shown = figures._asdict() | {"opened_at": moment(figures.opened_at)}
    return Connection(id=f"{worker}/{figures.number}", worker=worker, **shown)


def _is_from(shown: str, address: str) -> bool:
    return shown == address or shown.startswith((f"{address}:", f"[{address}]:"))
