"""Pages of traces: what is traced, and the events recorded so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone

from relay.access.actor import Actor
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.figures import Kind
from relay.dashboard.pages import may, page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import (
    Action,
    Ask,
    Cell,
    Column,
    Filter,
    Row,
    Table,
    respond,
    whole_number,
)
from relay.ops.paging import Page
from relay.trace import bounds, orders, services
from relay.trace.events import Event, Stage
from relay.trace.models import TraceOrder
from relay.trace.timeline import Leg, timeline

KINDS: Final = {
    orders.Kind.UID: "one message",
    orders.Kind.TWIN: "a twin",
    orders.Kind.SESSION: "a session",
}
STATES: Final = {
    services.State.RUNNING: State("running", Tone.GOOD),
    services.State.OFF: State(
        "off", Tone.WARNING, "removed because Redis was full, or lost by Redis"
    ),
    services.State.STOPPED: State("stopped", Tone.IDLE),
    services.State.ENDED: State("ended", Tone.IDLE),
}
COLUMNS: Final = (
    Column("id", "Trace", Cell.CODE),
    Column("state", "State", Cell.STATE),
    Column("follows", "Follows"),
    Column("subject", "Of", Cell.CODE),
    Column("remaining_s", "Running", Kind.DURATION),
    Column("events", "Events", Kind.NUMBER, hint="recorded so far"),
    Column(
        "skipped", "Skipped", Kind.NUMBER, hint="messages not followed because of the maximum rate"
    ),
    Column("lost", "Lost", Kind.NUMBER, hint="events that could not be stored"),
    Column("started", "Started", Cell.MOMENT, order="started"),
    Column("started_by", "By"),
    Column("sample", "Share", Kind.SHARE, optional=True, hint="of the messages"),
    Column("events_per_s", "At most", Kind.RATE, optional=True, hint="events of each process"),
    Column("until", "Ends", Cell.MOMENT, order="until", optional=True),
)
MESSAGE_COLUMNS: Final = (
    Column("at", "First event", Cell.MOMENT),
    Column("uid", "Message", Cell.CODE, hint="uid; link to the path of the message"),
    Column("kind", "Kind"),
    Column("source", "From", Cell.CODE),
    Column("destination", "To", Cell.CODE),
    Column("outcome", "Last step", Cell.STATE),
    Column("took_s", "Took", Kind.DURATION, hint="from the first to the last event"),
    Column("steps", "Steps", Kind.NUMBER),
    Column("stages", "Stages", optional=True),
    Column("size_bytes", "Size", Kind.BYTES, optional=True),
)
ORDERS: Final = {"started": "started", "until": "until"}
WINDOW: Final = bounds.MAX_PAGE
"""Number of latest events of a trace that are read together. A message that begins before them is
shown only in part; its own page contains all of its events."""
_GOOD: Final = frozenset((Stage.REMOVED, Stage.ACKNOWLEDGED))
BAD: Final = frozenset((Stage.EXPIRED, Stage.TRIMMED, Stage.PURGED, Stage.GIVEN_UP, Stage.REFUSED))


class StartForm(forms.Form):
    """What to trace, and bounds of the events recorded."""

    kind = forms.ChoiceField(
        label="Follow",
        choices=[
            ("twin", "all messages of a twin"),
            ("session", "all messages of a session"),
            ("uid", "a message"),
        ],
    )
    subject = forms.CharField(
        label="Of",
        max_length=bounds.MAX_TEXT_CHARS,
        strip=False,
        help_text="Id of the twin, twin:session id, or uid of the message.",
    )
    lifetime_s = forms.TypedChoiceField(
        label="For",
        coerce=int,
        initial=bounds.LIFETIME_S,
        choices=[(60, "1 minute"), (300, "5 minutes"), (600, "10 minutes"), (1800, "30 minutes"),
                 (3600, "1 hour")],
    )  # fmt: skip
    events_per_s = forms.IntegerField(
        label="Maximum events per second of each process",
        initial=bounds.EVENTS_PER_S,
        min_value=1,
        max_value=bounds.MAX_EVENTS_PER_S,
        help_text="Further messages are only counted.",
    )
    sample = forms.FloatField(
        label="Fraction of messages",
        initial=1,
        min_value=bounds.MIN_SAMPLE,
        max_value=1,
        help_text="1: all messages. All processes follow the same messages.",
    )
    unknown = forms.BooleanField(
        label="Accept unknown",
        required=False,
        help_text="Accept a twin that this relay does not know, or a uid that is not a UUID.",
    )


@page("trace.view")
def traces(request: HttpRequest) -> HttpResponseBase:
    """List the running traces, and those of the last days."""
    stoppable = may(request, "trace.stop")

    def fetch(ask: Ask) -> Page[Row]:
        found = TraceOrder.objects.all()
        if ask.filters["kind"] in set(orders.Kind):
            found = found.filter(kind=ask.filters["kind"])
        page = ask.page(found, ORDERS)
        return Page([_row(each, stoppable) for each in services.look(page.items)], page.next)

    table = Table(
        request, "traces", COLUMNS, fetch, order="-started", live=True,
        filters=(Filter("kind", "Follows", [(kind.value, text) for kind, text in KINDS.items()]),),
        empty="No traces. A trace of a twin shows the path of its messages.",
    )  # fmt: skip
    context = {"startable": may(request, "trace.start")}
    return respond(request, table, "relay_dashboard/traces.html", "Traces", context)


@page("trace.view")
def trace(request: HttpRequest, order_id: str) -> HttpResponseBase:
    """Show one trace: the messages it recorded, the latest first; refreshed while it runs."""
    (found,) = services.look([services.find(order_id)])

    def fetch(ask: Ask) -> Page[Row]:
        before, _, passed = ask.cursor.partition(".")
        begin = whole_number("cursor", passed) or 0
        noted = services.latest(order_id, WINDOW, before)
        rows = message_rows(each.event for each in noted)
        if ask.filters["uid"]:
            rows = [row for row in rows if ask.filters["uid"] in row.values["uid"]]
        end, following = begin + ask.limit, ""
        if end < len(rows):
            following = f"{before}.{end}"
        elif len(noted) == WINDOW:
            following = f"{noted[0].cursor}."
        return Page(rows[begin:end], following)

    running = found.state is services.State.RUNNING
    empty = "No messages yet." if running else "The events have expired."
    table = Table(
        request, "messages", MESSAGE_COLUMNS, fetch, live=running, empty=empty,
        filters=(Filter("uid", "Message", hint="part of a uid"),),
    )  # fmt: skip
    context = {
        "trace": found,
        "state": STATES[found.state],
        "follows": KINDS[orders.Kind(found.row.kind)],
        "stop": may(request, "trace.stop") and running,
    }
    if request.headers.get("HX-Target") == "trace-facts":
        return TemplateResponse(request, "relay_dashboard/trace_facts.html", context)
    title = f"Trace of {context['follows']}"
    return respond(request, table, "relay_dashboard/trace.html", title, context)


@page("trace.start")
def start(request: HttpRequest) -> HttpResponseBase:
    """Start a trace; the address may contain values of the form already."""
    given = {name: request.GET[name] for name in StartForm.base_fields if name in request.GET}
    form = StartForm(posted(request), initial=given)

    def perform(actor: Actor) -> HttpResponseBase:
        row = services.start(actor=actor, **form.cleaned_data)
        messages.success(request, f"The trace of {row.subject} starts within a second")
        return HttpResponseRedirect(reverse("console:trace", args=[row.id]))

    question = Question(
        "Start a trace",
        "Start",
        "The trace records the headers of messages at each step, never their contents. "
        "It ends after the chosen time, and its events are kept for an hour.",
    )
    return act(request, question, perform, reverse("console:traces"), form)


@page("trace.stop")
def stop(request: HttpRequest, order_id: str) -> HttpResponseBase:
    """Stop a trace before its time."""
    row = services.find(order_id)

    def perform(actor: Actor) -> str:
        services.stop(order_id, actor=actor)
        return f"The trace of {row.subject} has stopped"

    question = Question(
        f"Stop the trace of {KINDS[orders.Kind(row.kind)]}, {row.subject}",
        "Stop",
        "The trace does not follow messages any further. Its events are kept for an hour.",
    )
    return act(request, question, perform, reverse("console:trace", args=[order_id]))


def message_rows(events: Iterable[Event]) -> list[Row]:
    """Return a row for each leg of each message, the latest first."""
    by_uid: dict[str, list[Event]] = {}
    for event in events:
        by_uid.setdefault(event.uid, []).append(event)
    legs = [(uid, leg) for uid, own in by_uid.items() for leg in timeline(uid, own).legs]
    legs.sort(key=lambda each: each[1].steps[0].when, reverse=True)
    return [_message(uid, leg) for uid, leg in legs]


def outcome_of(leg: Leg) -> State:
    """Return how far a leg got, with a colour."""
    stages = {step.event.stage for step in leg.steps}
    tone = Tone.INFO
    if stages & _GOOD or leg.outcome.startswith("accepted by"):
        tone = Tone.GOOD
    elif stages & BAD:
        tone = Tone.BAD
    elif stages & {Stage.DECLINED, Stage.QUEUED} or leg.outcome.startswith("tried"):
        tone = Tone.WARNING
    return State(leg.outcome, tone)


def _row(trace: services.Trace, stoppable: bool) -> Row:
    row, running = trace.row, trace.state is services.State.RUNNING
    left_s = (row.until - timezone.now()).total_seconds()
    values: dict[str, Any] = {
        "id": row.id,
        "state": STATES[trace.state],
        "follows": KINDS[orders.Kind(row.kind)],
        "subject": row.subject,
        "remaining_s": max(0.0, left_s) if running else None,
        "events": trace.events,
        "skipped": trace.skipped,
        "lost": trace.lost,
        "started": row.started,
        "started_by": row.started_by,
        "sample": row.sample,
        "events_per_s": row.events_per_s,
        "until": row.stopped or row.until,
    }
    actions = []
    if stoppable and running:
        actions.append(Action("Stop", reverse("console:trace_stop", args=[row.id])))
    return Row(values, {"id": reverse("console:trace", args=[row.id])}, actions)


def _message(uid: str, leg: Leg) -> Row:
    values: dict[str, Any] = {
        "at": leg.steps[0].when,
        "uid": uid,
        "kind": leg.kind or "message",
        "source": leg.source or "a relay",
        "destination": leg.destination,
        "outcome": outcome_of(leg),
        "took_s": leg.took_s,
        "steps": len(leg.steps),
        "stages": ", ".join(step.event.stage.value for step in leg.steps),
        "size_bytes": leg.steps[0].event.size_bytes,
    }
    return Row(values, {"uid": address_of(uid)})


def address_of(uid: str) -> str:
    """Return the address of the page of a message.

    A uid of dots and slashes, which browsers take for folders, or with characters that cannot be
    printed goes into the query instead of the path.
    """
    if not uid.strip("./") or not uid.isprintable():
        return f"{reverse('console:trace_find')}?{urlencode({'uid': uid})}"
    return reverse("console:trace_message", args=[uid])
