"""Sessions as operators list them: those held now, and the history.

The authority for held sessions is the directory in Redis, which has no order. The database has a
row of each session about a second after it began. So a page is made from rows, in any order, and a
row is shown only if the directory still names its session with the same epoch. That takes one query
and two commands for a page, however many sessions there are. Rates are in Redis only: a page
ordered by them takes a scan of the active sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Final

from django.db import InterfaceError, OperationalError
from django.db.models import Count, Q, QuerySet
from redis.exceptions import RedisError

from relay.access.errors import Away, Invalid
from relay.ops import keyset, paging
from relay.ops.paging import Page
from relay.ops.redis_client import client
from relay.sessions import directory, published_rates, ranking
from relay.sessions.models import CARRIERS, PROTOCOLS, RMB, SBD, WEBSOCKET, Session, moment
from relay.sessions.published_rates import Published, owner_of
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
_Name = tuple[int | str, int]
"""Twin or key of a client, and epoch: identifies a row."""
NULLABLE: Final = ("twin",)
"""Orders whose field is null in rows of SBD."""


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A session that is held now.

    Attributes:
        key: `<twin>`, `<twin>:<sid>` or `sbd:<key>`.
        protocol: one of `models.PROTOCOLS`.
        twin: twin id; None if the session is not of RMB.
        sid: session id; None if it has none, which differs from an empty one.
        peer: public key of a client of SBD; None for RMB.
        epoch: epoch of the connection.
        worker, slot: boot id of the worker that holds it, and its slot on its host.
        connection, stream: number of the connection and id of the stream that carry it; None if it
            has a websocket of its own.
        messages_in, ...: counts since it was opened, up to 15 s old.
        backlog: messages on their way to the client at the last count.
        drops: messages from or to it that ended undelivered.
        slowed: pauses in reading from it because its messages were refused.
        rate_in, rate_out: messages per second over the last `rates.WINDOW_S`, from its client and
            to it.
        byte_rate_in, byte_rate_out: the same in bytes per second.
    """

    key: str
    protocol: str
    twin: int | None
    sid: str | None
    peer: str | None
    epoch: int
    worker: str
    slot: str
    connection: int | None
    stream: int | None
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
    protocol: str = "",
    peer: str = "",
    worker: str = "",
    address: str = "",
    carrier: str = "",
    order: str = "-opened",
    limit: int = 100,
    cursor: str = "",
) -> Page[LiveSession]:
    """Return one page of the sessions that are held now.

    Args:
        twin: only sessions of this twin.
        sid: only sessions with this session id.
        protocol: one of `models.PROTOCOLS`.
        peer: only sessions of SBD clients whose key begins with this text.
        worker: only sessions of the worker with this boot id.
        address: only sessions from this address, with or without its port.
        carrier: one of `models.CARRIERS`.
        order: one of `ORDERS`, with a minus for the largest or newest first.
        limit: maximum number of items on the page.
        cursor: cursor of the previous page.

    Raises:
        Invalid: the order, limit or cursor is not valid.
        Away: Redis or the database does not answer.
    """
    name, descending = paging.one_of(order, ORDERS)
    wanted = paging.bounded(limit)
    rows = Session.objects.filter(closed_at=None)
    given = {"twin": twin, "worker": worker or None}
    rows = rows.filter(**{key: value for key, value in given.items() if value is not None})
    rows = _carried(_of(rows, protocol, peer), carrier)
    if address:
        rows = rows.filter(_from(address))
    if sid is not None:
        rows = rows.filter(sid_present=True, sid=sid)
    try:
        if name in _RATES:
            return _by_rate(rows, _RATES[name], descending, order, wanted, cursor)
        field = _FIELDS[name]
        after = paging.decode(cursor, order, float if field == "opened_at" else int, int)
        if after and field == "opened_at":
            after = (_moment(after[0]), after[1])
        elif after and field in NULLABLE:
            after = (after[0] or None, after[1])
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
        (owner_of(key), each[0]): each[place]
        for key, each in published.sessions.items()
        if each[place] > 0
    }
    ranked = Ranking(rows, rates, _named, _name, descending)
    parts = ranked.parts(cursor, order, wanted + 1)
    return _page(ranking.page(parts, ranked.place, order, wanted, keep=_held), published)


def _name(row: Session) -> _Name:
    return (row.peer if row.twin is None else row.twin, row.epoch)


def _named(rows: QuerySet[Session], names: Sequence[_Name]) -> Iterable[Session]:
    owners, epochs = zip(*names, strict=True)
    twins = [owner for owner in owners if isinstance(owner, int)]
    peers = [owner for owner in owners if isinstance(owner, str)]
    rows = rows.filter(epoch__in=epochs)
    return chain(
        rows.filter(twin__in=twins) if twins else (),
        _of(rows, SBD).filter(peer__in=peers) if peers else (),
    )


def _page(found: Page[Session], published: Published) -> Page[LiveSession]:
    items = [_shown(row, published.of(row.key_text, row.epoch)) for row in found.items]
    return Page(items, found.next)


def total(protocol: str = "") -> int:
    """Return the number of sessions held now, by the directory; of one protocol or of all.

    Raises:
        Away: Redis does not answer.
    """
    try:
        return sum(
            int(client().hlen(name))
            for each, name in directory.HASHES.items()
            if protocol in ("", each)
        )
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error


def history(
    *,
    twin: int | None = None,
    sid: str | None = None,
    protocol: str = "",
    peer: str = "",
    reason: str = "",
    address: str = "",
    worker: str = "",
    carrier: str = "",
    open: bool | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> QuerySet[Session]:
    """Return former and present sessions, as the database knows them.

    Args:
        twin, sid, protocol, peer, address, worker, carrier: as in `live`.
        reason: reason of their end.
        open: True for sessions without an end only, False for the others only, None for both.
        since, until: bounds of the time they were opened.

    Raises:
        Invalid: there is no such protocol or carrier.
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
    rows = _carried(_of(Session.objects.filter(**chosen), protocol, peer), carrier)
    return rows.filter(_from(address)) if address else rows


def open_of(twins: Iterable[int]) -> dict[int, int]:
    """Return the number of open sessions in the database by twin, without twins that have none."""
    rows = Session.objects.filter(closed_at=None, twin__in=list(twins)).order_by()
    return dict(rows.values_list("twin").annotate(Count("pk")))


def _of(rows: QuerySet[Session], protocol: str = "", peer: str = "") -> QuerySet[Session]:
    """Return the rows of a protocol, and of clients whose key begins with `peer`.

    Raises:
        Invalid: there is no such protocol.
    """
    if protocol not in ("", *PROTOCOLS):
        raise Invalid(fields={"protocol": f"must be one of {', '.join(PROTOCOLS)}"})
    if protocol == RMB:
        rows = rows.filter(twin__isnull=False)
    elif protocol:
        rows = rows.filter(twin=None, protocol=protocol)
    return rows.filter(twin=None, peer__startswith=peer) if peer else rows


def _carried(rows: QuerySet[Session], carrier: str) -> QuerySet[Session]:
    """Return the rows of sessions on one carrier.

    Raises:
        Invalid: there is no such carrier.
    """
    if carrier not in ("", *CARRIERS):
        raise Invalid(fields={"carrier": f"must be one of {', '.join(CARRIERS)}"})
    return rows.filter(stream__isnull=carrier == WEBSOCKET) if carrier else rows


def _from(address: str) -> Q:
    """Return the condition for rows with an address.

    Rows hold it with its port: `host:port`, `[host]:port`, or a name without one.
    """
    return (
        Q(remote=address)
        | Q(remote__startswith=f"{address}:")
        | Q(remote__startswith=f"[{address}]:")
    )


def _parts(
    rows: QuerySet[Session], field: str, descending: bool, after: tuple[Any, ...], count: int
) -> Iterator[Part[Session]]:
    """Yield rows in the order of a field, after a position."""
    sign = "-" if descending else ""
    rows = rows.order_by(f"{sign}{field}", f"{sign}pk")
    while True:
        behind = rows
        if after:
            nullable = field in NULLABLE
            behind = rows.filter(keyset.behind(field, after, descending, nullable=nullable))
        part = list(behind[:count])
        if not part:
            return
        last = part[-1]
        after = (getattr(last, field), last.pk)
        yield _place(last, field), part


def _place(row: Session, field: str) -> tuple[Any, int]:
    """Return the position of a row as it is in cursors; 0 stands for no twin."""
    value = getattr(row, field)
    return (value.timestamp() if field == "opened_at" else value or 0), row.pk


def _moment(unix_s: float) -> datetime:
    try:
        return moment(unix_s)
    except (ValueError, OverflowError, OSError):
        raise Invalid(fields={"cursor": "is not a cursor of this list"}) from None


def _held(rows: list[Session]) -> list[Session]:
    """Return those of the rows that the directory names."""
    held: set[int] = set()
    for protocol, name in directory.HASHES.items():
        own = [row for row in rows if row.protocol == protocol]
        if not own:
            continue
        entries: Any = client().hmget(name, [directory.field(row.key_text) for row in own])
        held.update(
            row.pk
            for row, entry in zip(own, entries, strict=True)
            if entry is not None and directory.read(row.key_text, entry).epoch == row.epoch
        )
    return [row for row in rows if row.pk in held]


def _shown(row: Session, rates: Rates) -> LiveSession:
    return LiveSession(
        key=row.key_text,
        protocol=row.protocol,
        twin=row.twin,
        sid=row.sid if row.sid_present else None,
        peer=row.peer or None,
        epoch=row.epoch,
        worker=row.worker,
        slot=row.slot,
        connection=row.connection,
        stream=row.stream,
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
