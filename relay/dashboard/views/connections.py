"""Pages of connections whose streams carry sessions: the list, and one with its streams."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

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
    respond_all,
)
from relay.mux import listing, services
from relay.mux.listing import Connection, Stream
from relay.ops.control import MAX_REASON_CHARS
from relay.ops.paging import Page
from relay.resources.console import tabs
from relay.sessions.resources import CONNECTIONS, LIVE, connection_url, worker_names

_QUEUED: Final = "bytes that wait until the client allows the relay to send them"
_HELD: Final = "bytes from the client that wait to be processed"
_FIGURES: Final = (
    Column("opened_at", "Connected", Cell.MOMENT, order="opened"),
    Column("streams", "Streams", Kind.NUMBER, order="streams"),
    Column("sessions", "Sessions", Kind.NUMBER, order="sessions",
           hint="streams whose clients have signed in"),
    Column("queued_bytes", "Queued", Kind.BYTES, order="queued_bytes", hint=_QUEUED),
    Column("held_bytes", "Held", Kind.BYTES, order="held_bytes", hint=_HELD),
    Column("unsent_bytes", "Unsent", Kind.BYTES, order="unsent_bytes",
           hint="bytes that wait to be sent over the TCP connection of the client"),
    Column("stalls", "Stalls", Kind.NUMBER, order="stalls",
           hint="times that a stream waited because the client granted no more bytes"),
    Column("bytes_in", "Bytes in", Kind.BYTES, order="bytes_in", optional=True,
           hint="bytes received on streams"),
    Column("bytes_out", "Bytes out", Kind.BYTES, order="bytes_out", optional=True,
           hint="bytes sent on streams"),
)  # fmt: skip
COLUMNS: Final = (
    Column("id", "Connection", Cell.CODE, optional=True, hint="boot id of the worker/number"),
    Column("address", "Address", Cell.CODE),
    Column("worker", "Worker", hint="host/number"),
    *_FIGURES,
    Column("user_agent", "Client", Cell.CODE, optional=True, hint="User-Agent of the client"),
)
_ONE: Final = [replace(each, order="", optional=False) for each in (*_FIGURES, COLUMNS[-1])]
STREAMS: Final = (
    Column("id", "Stream", Cell.CODE, order="id"),
    Column("session", "Session", Cell.CODE, hint="-: the client has not signed in yet"),
    Column("state", "State", Cell.STATE),
    Column("credit", "Credit", Kind.BYTES, order="credit",
           hint="bytes that the client allows the relay to send; 0: nothing can be sent"),
    Column("queued_bytes", "Queued", Kind.BYTES, order="queued_bytes", hint=_QUEUED),
    Column("held_bytes", "Held", Kind.BYTES, order="held_bytes", hint=_HELD),
)  # fmt: skip
_STATES: Final = {
    "signing_in": State("signing in", Tone.INFO, "the client has not sent its token yet"),
    "open": State("open", Tone.GOOD),
    "closing": State(
        "closing", Tone.INFO, "the stream ends when the client has read everything sent to it"
    ),
    "closed": State("closed", Tone.IDLE),
}


@page("session.view")
def connections(request: HttpRequest) -> HttpResponseBase:
    """List the open connections."""
    kickable = may(request, "session.kick")
    workers = worker_names()

    def fetch(ask: Ask) -> Page[Row]:
        found = listing.live(
            worker=ask.filters["worker"],
            address=ask.filters["address"],
            order=ask.order,
            limit=ask.limit,
            cursor=ask.cursor,
        )
        return Page([_row(each, workers, kickable) for each in found.items], found.next)

    table = Table(
        request, "connections", COLUMNS, fetch, order="-streams", live=True,
        filters=(
            Filter("address", "Address", hint="host or host:port"),
            Filter("worker", "Worker", tuple(workers.items()), hint="boot id of the worker"),
        ),
        empty="No connection with streams is open.",
    )  # fmt: skip
    context = {"tabs": tabs(LIVE, CONNECTIONS)}
    return respond(request, table, "relay_dashboard/table_page.html", "Sessions", context)


@page("session.view")
def connection(request: HttpRequest, worker: str, number: int) -> HttpResponseBase:
    """Show one connection, and the streams that its worker publishes."""
    shown = listing.get(worker, number)
    workers = worker_names()

    def fetch_one(ask: Ask) -> Page[Row]:
        return Page([_row(listing.get(worker, number), workers)], "")

    def fetch_streams(ask: Ask) -> Page[Row]:
        found = listing.streams(
            worker,
            number,
            stream=ask.number("stream"),
            order=ask.order,
            limit=ask.limit,
            cursor=ask.cursor,
        )
        return Page([_stream(each) for each in found.items], found.next)

    tables = [
        Table(
            request, "connection", _ONE, fetch_one, live=True, prefix="c-",
            title=f"{shown.address} at worker {workers.get(worker, worker)}", short=1,
        ),
        Table(
            request, "streams", STREAMS, fetch_streams, order="-queued_bytes", live=True,
            title="Streams", filters=[Filter("stream", "Stream", hint="its id")],
            empty="No details: the worker publishes the streams with the most bytes that wait.",
        ),
    ]  # fmt: skip
    context = {}
    if may(request, "session.kick"):
        context["actions"] = [Action("Kick connection", _kick_url(shown), danger=True)]
    title = f"Connection {number}"
    return respond_all(request, tables, "relay_dashboard/tables.html", title, context)


class ReasonForm(forms.Form):
    """The reason for a kick."""

    reason = forms.CharField(
        max_length=MAX_REASON_CHARS, required=False, help_text="For the audit log."
    )


@page("session.kick")
def kick(request: HttpRequest, worker: str, number: int) -> HttpResponseBase:
    """Close one connection and its sessions."""
    shown = listing.get(worker, number)
    form = ReasonForm(posted(request))

    def perform(actor: Actor) -> str:
        services.kick(worker, number, actor=actor, reason=form.cleaned_data["reason"])
        return f"Connection {shown.id} will end within a second"

    question = Question(
        f"Kick the connection from {shown.address}",
        "Kick",
        f"The relay closes the connection and all sessions on it (now {shown.sessions:,}) within a "
        "second, with code 4003. The client may reconnect at once; to keep it out, ban its "
        "address. No message is lost: undelivered messages wait in the queues.",
    )
    return act(request, question, perform, reverse("console:connections"), form)


def _kick_url(connection: Connection) -> str:
    return reverse("console:connection_kick", args=[connection.worker, connection.number])


def _row(connection: Connection, workers: dict[str, str], kickable: bool = False) -> Row:
    names = [each.key for each in (*_FIGURES, COLUMNS[-1])]
    values = {
        **{name: getattr(connection, name) for name in names},
        "id": connection.id,
        "address": connection.address,
        "worker": workers.get(connection.worker, connection.worker),
    }
    links = {"address": connection_url(connection.worker, connection.number)}
    actions = [Action("Kick", _kick_url(connection), danger=True)] if kickable else []
    return Row(values, links, actions)


def _stream(stream: Stream) -> Row:
    values = {
        **stream._asdict(),
        "session": stream.session or None,
        "state": _STATES.get(stream.state, State(stream.state, Tone.WARNING)),
    }
    twin, _, sid = stream.session.partition(":")
    query = urlencode({name: value for name, value in (("twin", twin), ("sid", sid)) if value})
    links = {"session": f"{reverse('console:sessions')}?{query}"} if twin else {}
    return Row(values, links)
