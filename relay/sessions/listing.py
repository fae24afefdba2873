"""Sessions as operators list them: those held now, and the history.

The live truth is the directory in Redis, which has no order; the database has a row of each session
about a second after it began. So a page is made from rows, in any order, and each is shown only if
the directory still names it with the same epoch. That costs one query and one command for a page,
however many sessions there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import InterfaceError, OperationalError
from django.db.models import Count, Q, QuerySet
from redis.exceptions import RedisError

from relay.access.errors import Away, Invalid
from relay.ops import paging
from relay.ops.paging import Page
from relay.ops.redis_client import client, text
from relay.queues import keys
from relay.sessions.models import Session, moment

_FIELDS: Final = {
    "opened": "opened_at",
    "twin": "twin",
    "messages_in": "messages_in",
    "messages_out": "messages_out",
    "bytes_in": "bytes_in",
    "bytes_out": "bytes_out",
    "backlog": "backlog",
    "drops": "drops",
}
ORDERS: Final = tuple(_FIELDS)

MAX_LOOKS: Final = 10
"""Queries for one page. More than the first are needed where many sessions ended within the last
second; then the page has fewer items than it might."""


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A session that is held now.

    Attributes:
        key: `<twin>` or `<twin>:<sid>`.
        sid: None where it has none, which is not the same as an empty one.
        epoch: of the connection.
        worker, slot: boot id of the worker that holds it, and its place on its host.
        messages_in, ...: since it was opened, up to 15 s old.
        backlog: messages on their way to the client at the last look.
        drops: messages from or to it that ended undelivered.
        slowed: pauses in reading from it, because its messages were refused.
    """

    key: str
    twin: int
    sid: str | None
    epoch: int
    worker: str
    slot: str
    address: str
    user_agent: str
    opened_at: datetime
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    backlog: int
    drops: int
    slowed: int


def live(
    *,
    twin: int | None = None,
    sid: str | None = None,
    worker: str = "",
    address: str = "",
    order: str = "-opened",
    limit: int = 100,
    cursor: str = "",
) -> Page[LiveSession]:
    """One page of the sessions that are held now.

    Args:
        twin: those of one twin.
        sid: those with this session id.
        worker: those of the worker with this boot id.
        address: those from this address, with its port or without.
        order: one of `ORDERS`, with a minus for the largest or newest first.
        limit: items on the page.
        cursor: of the page before.

    Raises:
        Invalid: order, limit or cursor are none.
        Away: Redis or the database does not answer.
    """
    name, descending = paging.one_of(order, ORDERS)
    field, wanted = _FIELDS[name], paging.bounded(limit)
    kind = float if field == "opened_at" else int
    after = paging.decode(cursor, order, kind, int)
    rows = Session.objects.filter(closed_at=None)
    given = {"twin": twin, "worker": worker or None}
    rows = rows.filter(**{key: value for key, value in given.items() if value is not None})
    if address:
        rows = rows.filter(_from(address))
    if sid is not None:
        rows = rows.filter(sid_present=True, sid=sid)
    sign = "-" if descending else ""
    rows = rows.order_by(f"{sign}{field}", f"{sign}pk")
    found: list[LiveSession] = []
    try:
        for _ in range(MAX_LOOKS):
            part = list(_beyond(rows, field, descending, after)[: wanted + 1 - len(found)])
            for row in _held(part):
                if len(found) == wanted:
                    return Page(found, paging.encode(order, *after))
                found.append(_shown(row))
                after = _place(row, field)
            if not part:
                return Page(found, "")
            after = _place(part[-1], field)
        return Page(found, paging.encode(order, *after))
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    except (OperationalError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error


def total() -> int:
    """How many sessions are held now, by the directory.

    Raises:
        Away: Redis does not answer.
    """
    try:
        return int(client().hlen(keys.SESSIONS))
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error


def history(
    *,
    twin: int | None = None,
    sid: str | None = None,
    reason: str = "",
    address: str = "",
    worker: str = "",
    open: bool | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> QuerySet[Session]:
    """Sessions that were, and those that are, by what the database knows.

    Args:
        twin, sid, address, worker: as in `live`.
        reason: of their end.
        open: only those without an end, or only the others.
        since, until: when they were opened.
    """
    given: dict[str, Any] = {
        "twin": twin,
        "close_reason": reason or None,
        "worker": worker or None,
        "closed_at__isnull": open,
        "opened_at__gte": since,
        "opened_at__lt": until,
    }
    if sid is not None:
        given |= {"sid_present": True, "sid": sid}
    chosen = {name: value for name, value in given.items() if value is not None}
    rows = Session.objects.filter(**chosen)
    return rows.filter(_from(address)) if address else rows


def open_of(twins: Iterable[int]) -> dict[int, int]:
    """How many sessions each of some twins has, by what the database knows; none: not named."""
    rows = Session.objects.filter(closed_at=None, twin__in=list(twins)).order_by()
    return dict(rows.values_list("twin").annotate(Count("pk")))


def _from(address: str) -> Q:
    """Rows hold an address with its port: `host:port`, `[host]:port`, or a name without one."""
    return (
        Q(remote=address)
        | Q(remote__startswith=f"{address}:")
        | Q(remote__startswith=f"[{address}]:")
    )


def _beyond(
    rows: QuerySet[Session], field: str, descending: bool, after: tuple[Any, ...]
) -> QuerySet[Session]:
    if not after:
        return rows
    value, number = after
    if field == "opened_at":
        value = _moment(value)
    word = "lt" if descending else "gt"
    return rows.filter(
        Q(**{f"{field}__{word}": value}) | Q(**{field: value, f"pk__{word}": number})
    )


def _place(row: Session, field: str) -> tuple[Any, int]:
    value = getattr(row, field)
    return (value.timestamp() if field == "opened_at" else value), row.pk


def _moment(unix_s: float) -> datetime:
    try:
        return moment(unix_s)
    except (ValueError, OverflowError, OSError):
        raise Invalid(fields={"cursor": "is not a cursor of this list"}) from None


def _held(rows: list[Session]) -> list[Session]:
    """Those of the rows that the directory names."""
    if not rows:
        return []
    entries: Any = client().hmget(keys.SESSIONS, [row.key_text for row in rows])
    return [
        row
        for row, entry in zip(rows, entries, strict=True)
        if entry is not None and text(entry).partition(" ")[0] == str(row.epoch)
    ]


def _shown(row: Session) -> LiveSession:
    twin, sid = row.key
    return LiveSession(
        key=row.key_text,
        twin=twin,
        sid=sid,
        epoch=row.epoch,
        worker=row.worker,
        slot=row.slot,
        address=row.remote,
        user_agent=row.user_agent,
        opened_at=row.opened_at,
        messages_in=row.messages_in,
        messages_out=row.messages_out,
        bytes_in=row.bytes_in,
        bytes_out=row.bytes_out,
        backlog=row.backlog,
        drops=row.drops,
        slowed=row.slowed,
    )
