"""Operations on traces, for operators: start, stop and read them. Faces call only this module.

The database stores the orders; the events that processes recorded are in Redis (`relay:trace:<id>`)
for an hour. An order that is in force in the database but missing in `relay:control` is `off`: a
process removed it because Redis refused to store its events, or Redis lost it.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple

import redis.exceptions
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils import timezone

from relay.access.actor import Actor
from relay.access.errors import Away, Conflict, Invalid, NotFound
from relay.audit import services as audit
from relay.ops import control
from relay.ops.redis_client import client, text
from relay.queues import keys
from relay.trace import timeline as timelines
from relay.trace.bounds import (
    EVENTS_PER_S,
    KEPT_S,
    LIFETIME_S,
    MAX_ENDED_ROWS,
    MAX_LIFETIME_S,
    MAX_ORDERS,
    MAX_PAGE,
    MAX_TEXT_CHARS,
    MIN_LIFETIME_S,
)
from relay.trace.events import Event, EventError, decode
from relay.trace.following import FIELD_PREFIX
from relay.trace.models import ID_CHARS, TraceOrder
from relay.trace.orders import Kind
from relay.trace.timeline import Timeline
from relay.trace.tracer import FIELD
from relay.twins import listing as twins

CURSOR: Final = re.compile(r"[0-9]{1,19}(-[0-9]{1,19})?")
"""Pattern of an entry's id; twenty digits can exceed what Redis accepts."""
UID: Final = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}(\1[0-9a-f]{4}){2}\1[0-9a-f]{12}", re.I)
"""Pattern of a UUID, which clients use as a uid; any other text is allowed too."""
START: Final = "0-0"
"""Cursor before the first event."""
BLOCK_S: Final = 1.0
"""Most seconds for which `newer` waits for events; less than the connection's time-out."""


class State(StrEnum):
    """State of a trace."""

    RUNNING = "running"
    OFF = "off"
    STOPPED = "stopped"
    ENDED = "ended"


class Trace(NamedTuple):
    """One order and its results.

    Attributes:
        row: the order.
        state: state of the trace.
        events: number of events recorded so far.
        skipped: number of messages that were not followed because of the rate.
        lost: number of events that could not be stored.
    """

    row: TraceOrder
    state: State
    events: int
    skipped: int
    lost: int


class Noted(NamedTuple):
    """One event and its cursor, after which the next events follow."""

    cursor: str
    event: Event


# --- changes ----------------------------------------------------------------------------------


def start(
    kind: str,
    subject: str,
    *,
    actor: Actor,
    lifetime_s: float = LIFETIME_S,
    sample: float = 1.0,
    events_per_s: int = EVENTS_PER_S,
    unknown: bool = True,
) -> TraceOrder:
    """Trace one message, or all messages of a twin or session, for a limited time.

    Args:
        kind: `uid`, `twin` or `session`.
        subject: uid, id of the twin, or the session as `<twin>[:<session id>]`.
        actor: actor that starts it.
        lifetime_s: seconds after which it ends by itself.
        sample: share of the messages, from 0.0001 to 1.
        events_per_s: most events per second of each process.
        unknown: whether to accept a twin that this relay does not know, or a uid that is not a
            UUID; a user who types one may have misspelt it.

    Raises:
        Denied: the actor lacks the permission.
        Invalid: a value is out of bounds.
        NotFound: this relay does not know the twin.
        Conflict: the highest number of traces is running.
        Away: Redis or the database does not answer.
    """
    if not MIN_LIFETIME_S <= lifetime_s <= MAX_LIFETIME_S:
        raise Invalid(fields={"lifetime_s": f"From {MIN_LIFETIME_S} to {MAX_LIFETIME_S} seconds."})
    now = timezone.now()
    row = TraceOrder(
        id=secrets.token_hex(ID_CHARS // 2),
        kind=kind,
        subject=subject.strip() if kind != Kind.UID else subject,
        sample=sample,
        events_per_s=events_per_s,
        started=now,
        until=now + timedelta(seconds=lifetime_s),
        started_by=actor.name,
    )
    with audit.change(actor, "trace.start", target=row) as change, told():
        try:
            row.full_clean()
        except ValidationError as error:
            raise Invalid.of_validation(error) from error
        if not unknown:
            _require_known(row)
        if _running(now).count() >= MAX_ORDERS:
            raise Conflict(f"{MAX_ORDERS} traces are running: stop one of them")
        row.save(force_insert=True)
        change.after = {
            "id": row.id,
            "until": row.until,
            "sample": row.sample,
            "events_per_s": row.events_per_s,
        }
        control.change({_field(row): row.order().encode()}, _over(now))
    return row


def stop(order_id: str, *, actor: Actor) -> TraceOrder:
    """End a trace now. Its events are kept for an hour; a trace that has ended is not changed.

    Raises:
        Denied: the actor lacks the permission.
        NotFound: there is no such order.
        Away: Redis or the database does not answer.
    """
    row = find(order_id)
    with audit.change(actor, "trace.stop", target=row) as change, told():
        change.before = {"id": row.id, "until": row.until}
        change.happened = row.in_force()
        if change.happened:
            row.stopped, row.stopped_by = timezone.now(), actor.name
            row.save(update_fields=["stopped", "stopped_by"])
            control.change({}, [_field(row)])
    return row


def tidy() -> None:
    """Remove ended orders from `relay:control`, and delete the oldest rows. Runs once a minute.

    Raises:
        Away: Redis does not answer.
    """
    now = timezone.now()
    with told():
        present = {text(name) for name in client().hkeys(keys.CONTROL)}
        over = [name for name in _over(now) if name in present]
        if over:
            control.change({}, over)
    ended = TraceOrder.objects.filter(until__lt=now - timedelta(seconds=KEPT_S))
    oldest = ended.order_by("-started").values_list("pk", flat=True)[MAX_ENDED_ROWS:]
    TraceOrder.objects.filter(pk__in=list(oldest)).delete()


# --- reading ----------------------------------------------------------------------------------


def find(order_id: str) -> TraceOrder:
    """Return an order.

    Raises:
        NotFound: it does not exist.
    """
    row = TraceOrder.objects.filter(pk=order_id[:ID_CHARS]).first()
    if row is None or row.id != order_id:
        raise NotFound(f"there is no trace {order_id[:MAX_TEXT_CHARS]}")
    return row


def running_of(twin: int) -> list[TraceOrder]:
    """Return the orders in force that follow a twin, or one of its sessions."""
    rows = _running(timezone.now()).exclude(kind=Kind.UID)
    text = str(twin)
    return [row for row in rows if row.subject.partition(":")[0] == text]


def look(rows: Iterable[TraceOrder]) -> list[Trace]:
    """Return orders with their states and results.

    Raises:
        Away: Redis does not answer.
    """
    found, now = list(rows), timezone.now()
    with told(), client().pipeline(transaction=False) as pipe:
        for row in found:
            pipe.hexists(keys.CONTROL, _field(row))
            pipe.hgetall(keys.trace_figures(row.id))
        replies = pipe.execute()
    return [
        Trace(row, _state(row, there, now), *_figures(figures))
        for row, there, figures in zip(found, replies[::2], replies[1::2], strict=True)
    ]


def events(order_id: str, after: str = START, limit: int = MAX_PAGE) -> list[Noted]:
    """Return the events of an order after a cursor.

    Raises:
        NotFound: there is no such order.
        Invalid: the cursor is invalid.
        Away: Redis does not answer.
    """
    name = keys.trace(find(order_id).id)
    with told():
        entries: Any = client().xrange(name, f"({_cursor(after)}", "+", min(limit, MAX_PAGE))
    return list(read(order_id, entries))


def latest(order_id: str, limit: int, before: str = "") -> list[Noted]:
    """Return the last events of an order, the oldest of them first.

    Args:
        order_id: id of the order.
        limit: most events.
        before: cursor before which events are returned; empty for the last.

    Raises:
        Invalid: the cursor is invalid.
        Away: Redis does not answer.
    """
    with told():
        entries: Any = client().xrevrange(
            keys.trace(order_id),
            f"({_cursor(before)}" if before else "+",
            count=min(limit, MAX_PAGE),
        )
    return list(read(order_id, reversed(entries)))


def newer(order_id: str, after: str, wait_s: float = BLOCK_S) -> list[Noted]:
    """Return the next events of an order, after waiting for them for up to `wait_s`.

    Raises:
        Invalid: the cursor is invalid.
        Away: Redis does not answer.
    """
    name = keys.trace(order_id)
    with told():
        block_ms = max(1, int(min(wait_s, BLOCK_S) * 1000))
        reply: Any = client().xread({name: _cursor(after)}, count=MAX_PAGE, block=block_ms)
    return list(read(order_id, reply[0][1])) if reply else []


def follow(order_id: str, after: str = START) -> Iterator[list[Noted]]:
    """Yield events as they arrive, until the trace is over; sometimes the list is empty.

    Raises:
        NotFound: there is no such order.
        Away: Redis does not answer.
    """
    row = find(order_id)
    _cursor(after)
    last_look = 0.0
    while True:
        noted = newer(row.id, after)
        if noted:
            after = noted[-1].cursor
        yield noted
        if not noted and time.monotonic() - last_look >= BLOCK_S:
            last_look = time.monotonic()
            if look([find(row.id)])[0].state is not State.RUNNING:
                # Its last events may not have reached Redis before.
                yield newer(row.id, after)
                return


def timeline(uid: str, order_id: str = "", more: Sequence[Event] = ()) -> Timeline:
    """Return the way of one message, as far as it was traced within the last hour.

    Args:
        uid: uid of the message.
        order_id: only order whose events are read; empty for all.
        more: events of partner relays.

    Raises:
        NotFound: no order followed it.
        Away: Redis does not answer.
    """
    if order_id:
        ids = [find(order_id).id]
    else:
        since = timezone.now() - timedelta(seconds=KEPT_S)
        ids = list(TraceOrder.objects.filter(until__gte=since).values_list("pk", flat=True))
    # A cheap test, so that not each of thousands of events is parsed.
    needle = json.dumps(uid).encode()
    found = [*more]
    connection: Any = client()
    for each in ids:
        after = START
        while True:
            with told():
                entries = connection.xrange(keys.trace(each), f"({after}", "+", MAX_PAGE)
            if not entries:
                break
            after = text(entries[-1][0])
            mine = [entry for entry in entries if needle in entry[1].get(FIELD.encode(), b"")]
            found += [noted.event for noted in read(each, mine)]
    made = timelines.timeline(uid, found)
    if not made.legs:
        raise NotFound(f"no trace of the last hour has a message {uid[:MAX_TEXT_CHARS]}")
    return made


# --- parts ------------------------------------------------------------------------------------


def _require_known(row: TraceOrder) -> None:
    if row.kind != Kind.UID:
        twins.require_known(row.order().key[0])
    elif not UID.fullmatch(row.subject):
        raise Invalid(
            fields={
                "subject": f"{row.subject!r} is not a UUID, as the uids of clients are: check it, "
                "or allow unknown ones (--unknown)"
            }
        )


def _running(now: datetime) -> QuerySet[TraceOrder]:
    return TraceOrder.objects.filter(stopped__isnull=True, until__gt=now)


def _over(now: datetime) -> list[str]:
    """Return the fields of ended orders that may still be in `relay:control`."""
    recent = TraceOrder.objects.filter(until__gt=now - timedelta(seconds=2 * KEPT_S))
    return [_field(row) for row in recent if not row.in_force(now)]


def _field(row: TraceOrder) -> str:
    return f"{FIELD_PREFIX}{row.id}"


def _state(row: TraceOrder, there: bool, now: datetime) -> State:
    if row.stopped is not None:
        return State.STOPPED
    if row.until <= now:
        return State.ENDED
    return State.RUNNING if there else State.OFF


def _figures(fields: dict[bytes, bytes]) -> tuple[int, int, int]:
    return (
        int(fields.get(b"events", 0)),
        int(fields.get(b"skipped", 0)),
        int(fields.get(b"lost", 0)),
    )


def _cursor(value: str) -> str:
    if not CURSOR.fullmatch(value):
        raise Invalid(fields={"cursor": "A cursor of an event, or 0-0 for the first."})
    return value


def read(order_id: str, entries: Iterable[Any]) -> Iterator[Noted]:
    for entry_id, fields in entries:
        try:
            yield Noted(text(entry_id), decode(fields.get(FIELD.encode(), b""), order_id))
        except EventError:
            continue  # an event of a newer release


@contextmanager
def told() -> Iterator[None]:
    try:
        yield
    except redis.exceptions.RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    except control.ControlError as error:
        raise Away(str(error)) from error
