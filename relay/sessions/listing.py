"""Sessions as operators list them: those held now, and the history.

The live truth is the directory in Redis, which has no order; the database has a row of each session
about a second after it began. So a page is made from rows, in any order, and each is shown only if
the directory still names it with the same epoch. That costs one query and two commands for a page,
however many sessions there are. Rates are in Redis only: in their order a page costs a walk over
the active sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from relay.sessions import published_rates, ranking
from relay.sessions.models import Session, moment
from relay.sessions.published_rates import Published, twin_of
from relay.sessions.ranking import Part, Ranking
from relay.sessions.rates import Rates

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
_RATES: Final = {
    "rate_in": "messages_in",
    "rate_out": "messages_out",
    "byte_rate_in": "bytes_in",
    "byte_rate_out": "bytes_out",
}
ORDERS: Final = (*_FIELDS, *_RATES)


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
        rate_in, rate_out: messages a second over the last `rates.WINDOW_S`, from its client and
            to it.
        byte_rate_in, byte_rate_out: the same, bytes.
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
    rate_in: float
    rate_out: float
    byte_rate_in: float
    byte_rate_out: float


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
    wanted = paging.bounded(limit)
    rows = Session.objects.filter(closed_at=None)
    given = {"twin": twin, "worker": worker or None}
    rows = rows.filter(**{key: value for key, value in given.items() if value is not None})
    if address:
        rows = rows.filter(_from(address))
    if sid is not None:
        rows = rows.filter(sid_present=True, sid=sid)
    try:
        if name in _RATES:
            return _by_rate(rows, _RATES[name], descending, order, wanted, cursor)
        field = _FIELDS[name]
        after = paging.decode(cursor, order, float if field == "opened_at" else int, int)
        parts = _parts(rows, field, descending, after, wanted + 1)
        found = ranking.page(parts, lambda row: _place(row, field), order, wanted, keep=_held)
        rates = published_rates.read(client(), [row.key_text for row in found.items])
        return _page(found, rates)
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    except (OperationalError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error


def _by_rate(
    rows: QuerySet[Session], rate: str, descending: bool, order: str, wanted: int, cursor: str
) -> Page[LiveSession]:
    published = published_rates.read(client())
    place = 1 + Rates._fields.index(rate)
    rates = {
        (twin_of(key), each[0]): each[place]
        for key, each in published.sessions.items()
        if each[place] > 0
    }
    ranked = Ranking(rows, rates, _named, lambda row: (row.twin, row.epoch), descending)
    parts = ranked.parts(cursor, order, wanted + 1)
    return _page(ranking.page(parts, ranked.place, order, wanted, keep=_held), published)


def _named(rows: QuerySet[Session], names: Sequence[tuple[int, int]]) -> QuerySet[Session]:
    twins, epochs = zip(*names, strict=True)
    return rows.filter(twin__in=twins, epoch__in=epochs)


def _page(found: Page[Session], published: Published) -> Page[LiveSession]:
    items = [_shown(row, published.of(row.key_text, row.epoch)) for row in found.items]
    return Page(items, found.next)


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


def _parts(
    rows: QuerySet[Session], field: str, descending: bool, after: tuple[Any, ...], count: int
) -> Iterator[Part[Session]]:
    """Yield rows in the order of a field, from behind a place."""
    sign, word = ("-", "lt") if descending else ("", "gt")
    rows = rows.order_by(f"{sign}{field}", f"{sign}pk")
    while True:
        behind = rows
        if after:
            value, number = after
            if field == "opened_at":
                value = _moment(value)
            behind = rows.filter(
                Q(**{f"{field}__{word}": value}) | Q(**{field: value, f"pk__{word}": number})
            )
        part = list(behind[:count])
        if not part:
            return
        after = _place(part[-1], field)
        yield after, part


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


def _shown(row: Session, rates: Rates) -> LiveSession:
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
        rate_in=rates.messages_in,
        rate_out=rates.messages_out,
        byte_rate_in=rates.bytes_in,
        byte_rate_out=rates.bytes_out,
    )
