"""Traces over REST: start, stop and list traces, read their events, and stream them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from ninja import Field, Query, Router, Schema
from pydantic import StringConstraints

from relay.rest import events
from relay.rest.caller import Request
from relay.rest.operation import get, post
from relay.rest.paging import page
from relay.rest.schema import Body, Page, PageQuery, Whole
from relay.trace import bounds, live, services, texts
from relay.trace.events import Stage
from relay.trace.models import ID_CHARS, TraceOrder
from relay.trace.orders import Kind
from relay.trace.services import Noted, Trace

router = Router(tags=["traces"])

ORDERS: Final = {"started": "started", "until": "until"}
TraceId = Annotated[str, Field(min_length=1, max_length=ID_CHARS, description="Id of a trace.")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=bounds.MAX_TEXT_CHARS)]


class TraceOut(Schema):
    """A trace and its state."""

    id: str
    kind: Kind
    subject: str = Field(description="The uid, the twin's id, or `<twin>[:<session id>]`.")
    sample: float
    events_per_s: int
    started: datetime
    until: datetime = Field(description="Time at which it ends.")
    started_by: str
    stopped: datetime | None
    stopped_by: str
    state: services.State = Field(
        description="State of the trace; `off`: Redis was full or lost the trace."
    )
    events: int = Field(description="Number of events so far.")
    skipped: int = Field(description="Messages that were not traced because of `events_per_s`.")
    lost: int = Field(description="Events that could not be stored.")


class TraceIn(Body):
    """A message, twin or session to trace."""

    kind: Kind
    subject: Text = Field(description="The uid, the twin's id, or `<twin>[:<session id>]`.")
    lifetime_s: Whole = Field(bounds.LIFETIME_S, ge=bounds.MIN_LIFETIME_S, le=bounds.MAX_LIFETIME_S)
    sample: float = Field(
        1.0, ge=bounds.MIN_SAMPLE, le=1, description="Share of the messages to trace."
    )
    events_per_s: Whole = Field(
        bounds.EVENTS_PER_S,
        ge=1,
        le=bounds.MAX_EVENTS_PER_S,
        description="Highest number of events a second in each process.",
    )


class TraceEventOut(Schema):
    """What happened to a message at one moment; unknown fields are empty or 0."""

    at: float = Field(description="Unix time, from the clock of the process.")
    by: str = Field(description="The process.")
    here: str = Field(description="Relay that the process belongs to.")
    stage: Stage
    uid: str
    source: str
    destination: str
    size_bytes: int
    kind: str
    reason: str = ""
    epoch: int = 0
    entry: str = ""
    batch: int = 0
    relay: str = Field("", description="Partner relay that the message came from or was sent to.")
    answer: str = ""
    ms: float = 0.0


class NotedOut(TraceEventOut):
    """An event of a trace."""

    cursor: str = Field(description="Cursor to get the events after this one.")


class StepOut(Schema):
    """One event of a timeline."""

    when: float = Field(
        description="Corrected Unix time, at which no effect comes before its cause."
    )
    after_ms: float
    event: TraceEventOut


class LegOut(Schema):
    """The way of a message from its sender to its destination."""

    kind: str
    source: str
    destination: str
    outcome: str
    took_ms: float
    shifts_ms: dict[str, float] = Field(
        description="Correction of the clocks of partner relays, in milliseconds."
    )
    steps: list[StepOut]


class TimelineOut(Schema):
    """All events of one uid: request, answer and errors."""

    uid: str
    legs: list[LegOut]


class TraceQuery(PageQuery):
    """Filters of the list."""

    kind: Kind | None = None
    order: Literal["started", "-started", "until", "-until"] = "-started"


class TraceEventQuery(Schema):
    """Part of a trace's events."""

    limit: int = Field(
        100, ge=1, le=bounds.MAX_PAGE, description="Highest number of events on the page."
    )
    cursor: str = Field(
        services.START,
        max_length=41,
        description="`cursor` of the event before the first one to return.",
    )


class TimelineQuery(Schema):
    """Message of a timeline."""

    uid: Text
    trace: str = Field(
        "", max_length=ID_CHARS, description="Id of a trace; only its events are used."
    )


@get(router, path="/traces", action="trace.view", answer=Page[TraceOut])
def list_traces(request: Request, query: Query[TraceQuery]) -> Any:
    """List running and past traces.

    The events of a trace are kept for an hour after the last one.
    """
    rows = TraceOrder.objects.all()
    if query.kind is not None:
        rows = rows.filter(kind=query.kind)
    return page(query, rows, ORDERS, show=lambda found: map(_shown, services.look(found)))


@post(router, path="/traces", action="trace.start", answer=TraceOut, status=201)
def start_trace(request: Request, body: TraceIn) -> Any:
    """Trace a message, or all messages of a twin or session.

    The trace starts within a second and ends after `lifetime_s`.
    """
    row = services.start(
        body.kind,
        body.subject,
        actor=request.actor,
        lifetime_s=body.lifetime_s,
        sample=body.sample,
        events_per_s=body.events_per_s,
    )
    return _one(row)


@get(router, path="/traces/{trace}", action="trace.view", answer=TraceOut)
def get_trace(request: Request, trace: TraceId) -> Any:
    """Get a trace."""
    return _one(services.find(trace))


@post(router, path="/traces/{trace}/stop", action="trace.stop", answer=TraceOut)
def stop_trace(request: Request, trace: TraceId) -> Any:
    """End a trace now.

    A trace that has ended is not changed.
    """
    return _one(services.stop(trace, actor=request.actor))


@get(router, path="/traces/{trace}/events", action="trace.view", answer=Page[NotedOut])
def list_trace_events(request: Request, trace: TraceId, query: Query[TraceEventQuery]) -> Any:
    """List the events of a trace, the oldest first.

    Use the `cursor` of the last event to get later ones.
    """
    noted = services.events(trace, query.cursor, query.limit)
    more = len(noted) == query.limit
    return {"items": [_noted(each) for each in noted], "next": noted[-1].cursor if more else None}


@get(router, path="/traces/{trace}/live", action="trace.view", answer=NotedOut, events=True)
async def stream_trace_events(request: Request, trace: TraceId) -> Any:
    """Stream the events of a trace, from the first one.

    When the trace ends, an event named `end` with the trace follows the last one.
    """
    row = await sync_to_async(services.find)(trace)

    async def source(last_id: str) -> AsyncIterator[events.Event]:
        cursor = last_id or services.START
        async with contextlib.aclosing(live.follow(trace, row.until, cursor)) as pages:
            async for noted in pages:
                for each in noted:
                    cursor = each.cursor
                    yield events.Event(cursor, "event", _noted(each))
        yield events.Event(cursor, "end", await database_sync_to_async(_ended)(trace))

    return await events.stream(request, "trace.view", source, ids=services.CURSOR)


@get(router, path="/timelines", action="trace.view", answer=TimelineOut, missing=True)
def get_timeline(request: Request, query: Query[TimelineQuery]) -> Any:
    """Get the events of one message in all processes, as far as it was traced."""
    return texts.timeline_document(services.timeline(query.uid, query.trace))


def _one(row: TraceOrder) -> dict[str, Any]:
    (trace,) = services.look([row])
    return _shown(trace)


def _shown(trace: Trace) -> dict[str, Any]:
    return texts.trace_document(trace)


def _noted(noted: Noted) -> dict[str, Any]:
    return {"cursor": noted.cursor, **noted.event._asdict()}


def _ended(order_id: str) -> dict[str, Any]:
    return _one(services.find(order_id))
