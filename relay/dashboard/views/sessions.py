"""Sessions: those held now, those that were, and ending them."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse

from proto.rmb.reasons import SESSIONS, SessionReason
from proto.sbd.errors import DropReason
from relay.access.actor import Actor
from relay.access.errors import Away, Invalid
from relay.dashboard.acts import Question, act, posted
from relay.dashboard.addresses import check_twin
from relay.dashboard.figures import OVER, Kind
from relay.dashboard.pages import may, page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import (
    Action,
    Ask,
    Cell,
    Column,
    Filter,
    Row,
    Tab,
    Table,
    respond,
    whole_number,
)
from relay.ops import services as ops
from relay.ops.control import MAX_REASON_CHARS
from relay.ops.paging import Page
from relay.ops.wording import counted
from relay.sbd.options import MEANINGS, EndReason
from relay.sessions import directory, listing, services
from relay.sessions.listing import LiveSession
from relay.sessions.models import CARRIERS, PROTOCOLS, RMB, SBD, Session

CONNECTIONS: Final = "connections"
"""Name of the address of the list of connections."""
_OLD: Final = "up to 15 s old"
_ADDRESS: Final = (
    Column("protocol", "Protocol", Cell.LINE, optional=True),
    Column("twin", "Twin", Cell.CODE, order="twin"),
    Column("sid", "Session id", Cell.CODE, hint="chosen by the client; -: none given"),
    Column("peer", "SBD key", Cell.CODE, optional=True, hint="public key of an SBD client"),
    Column("key", "Key", Cell.CODE, optional=True, hint="twin:session id, sbd:key"),
    Column("address", "Address", Cell.CODE),
    Column("carrier", "Carrier", Cell.LINE,
           hint="websocket: its own; stream: one of many on a connection"),
    Column("worker", "Worker", hint="host/number"),
    Column("boot_id", "Boot id", Cell.CODE, optional=True, hint="of the worker"),
)  # fmt: skip
_COUNTERS: Final = (
    Column("messages_in", "Messages in", Kind.NUMBER, order="messages_in", optional=True,
           hint=f"from its client, since it was opened; {_OLD}"),
    Column("messages_out", "Messages out", Kind.NUMBER, order="messages_out", optional=True,
           hint=f"to its client, since it was opened; {_OLD}"),
    Column("bytes_in", "Bytes in", Kind.BYTES, order="bytes_in", optional=True, hint=_OLD),
    Column("bytes_out", "Bytes out", Kind.BYTES, order="bytes_out", optional=True, hint=_OLD),
)  # fmt: skip
_SLOWED: Final = "pauses in reading from the client after refused messages"
LIVE: Final = (
    *_ADDRESS,
    Column("opened_at", "Connected", Cell.MOMENT, order="opened"),
    Column("rate_in", "In", Kind.RATE, order="rate_in", hint=f"messages from its client, {OVER}"),
    Column("rate_out", "Out", Kind.RATE, order="rate_out", hint=f"messages to its client, {OVER}"),
    Column("byte_rate_in", "Traffic in", Kind.BYTE_RATE, order="byte_rate_in", optional=True,
           hint=f"bytes from its client, {OVER}"),
    Column("byte_rate_out", "Traffic out", Kind.BYTE_RATE, order="byte_rate_out", optional=True,
           hint=f"bytes to its client, {OVER}"),
    *_COUNTERS,
    Column("backlog", "Backlog", Kind.NUMBER, order="backlog",
           hint=f"messages sent to its client and not yet acknowledged; {_OLD}"),
    Column("drops", "Drops", Kind.NUMBER, order="drops",
           hint=f"undelivered messages from or to the session; {_OLD}"),
    Column("slowed", "Slowed", Kind.NUMBER, optional=True, hint=f"{_SLOWED}; {_OLD}"),
    Column("user_agent", "Client", Cell.CODE, optional=True, hint="User-Agent of the client"),
)  # fmt: skip
ENDED: Final = (
    *_ADDRESS,
    Column("opened_at", "Connected", Cell.MOMENT, order="opened", optional=True),
    Column("closed_at", "Ended", Cell.MOMENT, order="ended"),
    Column("lasted_s", "Lasted", Kind.DURATION),
    Column("reason", "End", Cell.STATE),
    Column("messages_in", "In", Kind.NUMBER, hint="messages from its client in total"),
    Column("messages_out", "Out", Kind.NUMBER, hint="messages to its client in total"),
    *(Column(each.key, each.title, each.kind, optional=True) for each in _COUNTERS[2:]),
    Column("drops", "Drops", Kind.NUMBER, order="drops",
           hint="undelivered messages from or to the session"),
    Column("slowed", "Slowed", Kind.NUMBER, optional=True, hint=_SLOWED),
    Column("user_agent", "Client", Cell.CODE, optional=True, hint="User-Agent of the client"),
)  # fmt: skip
ENDED_ORDERS: Final = {
    "ended": "closed_at", "opened": "opened_at", "twin": "twin", "drops": "drops",
}  # fmt: skip

_REASONS: Final = tuple(
    dict.fromkeys(each.value for each in (*SessionReason, *DropReason, *EndReason))
)
_MEANINGS: Final[dict[str, dict[str, str]]] = {
    RMB: {reason.value: end.meaning for reason, end in SESSIONS.items()},
    SBD: {reason.value: meaning for reason, meaning in MEANINGS.items()},
}
_TONES: Final[dict[str, Tone]] = {
    SessionReason.CLIENT_CLOSE: Tone.GOOD,
    SessionReason.REPLACED: Tone.INFO,
    SessionReason.DRAINED: Tone.INFO,
    SessionReason.IDLE: Tone.IDLE,
    SessionReason.KICKED: Tone.WARNING,
    SessionReason.TWIN_CHANGED: Tone.WARNING,
    SessionReason.BACK_PRESSURE: Tone.WARNING,
    EndReason.SLOW_READER: Tone.WARNING,
}


@page("session.view")
def sessions(request: HttpRequest) -> HttpResponseBase:
    """Sessions that are held now."""
    kickable = may(request, "session.kick")
    workers = worker_names()

    def fetch(ask: Ask) -> Page[Row]:
        found = listing.live(
            twin=ask.number("twin"),
            sid=ask.filters["sid"] or None,
            protocol=ask.filters["protocol"],
            peer=ask.filters["peer"],
            worker=ask.filters["worker"],
            address=ask.filters["address"],
            carrier=ask.filters["carrier"],
            order=ask.order,
            limit=ask.limit,
            cursor=ask.cursor,
        )
        return Page(live_rows(found.items, workers, kickable), found.next)

    table = Table(
        request, "sessions", _columns(LIVE), fetch, order="-opened", live=True,
        filters=_filters(workers), empty="No session is connected.",
    )  # fmt: skip
    twin, actions = None, []
    with contextlib.suppress(Invalid):  # the table tells
        twin = whole_number("twin", table.filter("twin").value)
    if kickable and twin is not None:
        actions.append(Action(f"Kick all of twin {twin}", _kick_twin_url(twin), danger=True))
    context = {"tabs": tabs("sessions"), "actions": actions}
    return respond(request, table, "relay_dashboard/table_page.html", "Sessions", context)


@page("session.view")
def history(request: HttpRequest) -> HttpResponseBase:
    """Sessions that have ended."""
    workers = worker_names()

    def fetch(ask: Ask) -> Page[Row]:
        rows = listing.history(
            twin=ask.number("twin"),
            sid=ask.filters["sid"] or None,
            protocol=ask.filters["protocol"],
            peer=ask.filters["peer"],
            worker=ask.filters["worker"],
            address=ask.filters["address"],
            carrier=ask.filters["carrier"],
            reason=ask.filters["reason"],
            open=False,
        )
        found = ask.page(rows, ENDED_ORDERS, listing.NULLABLE)
        return Page(ended_rows(found.items, workers), found.next)

    reasons = [(each, words(each)) for each in _REASONS]
    table = Table(
        request, "sessions-ended", _columns(ENDED), fetch, order="-ended",
        filters=(*_filters(workers), Filter("reason", "End", reasons)),
        empty="No session has ended yet.",
    )  # fmt: skip
    context = {"tabs": tabs("session_history")}
    return respond(request, table, "relay_dashboard/table_page.html", "Sessions", context)


class ReasonForm(forms.Form):
    """Why."""

    reason = forms.CharField(
        max_length=MAX_REASON_CHARS, required=False, help_text="For the audit log."
    )


@page("session.kick")
def kick(request: HttpRequest, key: str) -> HttpResponseBase:
    """End one session."""
    epoch = whole_number("epoch", request.GET.get("epoch", ""))
    form = ReasonForm(posted(request))

    def perform(actor: Actor) -> str:
        services.kick(key, actor=actor, epoch=epoch, reason=form.cleaned_data["reason"])
        return f"Session {key} will end within a second"

    told = (
        "The relay ends the connection within a second, without a close frame. The "
        "client may reconnect at once; to keep it out, ban its key. The relay drops "
        "packets for the client until it reconnects."
        if directory.protocol_of(key) == SBD
        else "The relay closes the connection within a second (code 4003). The client may "
        "reconnect at once; to keep it out, ban the twin. No message is lost: "
        "undelivered messages wait in its queue."
    )
    question = Question(f"Kick session {key}", "Kick", told)
    return act(request, question, perform, reverse("console:sessions"), form)


@page("session.kick")
def kick_twin(request: HttpRequest, twin: int) -> HttpResponseBase:
    """End all sessions of a twin."""
    check_twin(twin)
    form = ReasonForm(posted(request))
    count = listing.open_of([twin]).get(twin, 0)

    def perform(actor: Actor) -> str:
        told = services.kick_twin(twin, actor=actor, reason=form.cleaned_data["reason"])
        return f"{counted(told, 'session')} of twin {twin} will end within a second"

    question = Question(
        f"Kick all sessions of twin {twin}",
        "Kick all",
        f"The relay closes all its connections (now {count:,}) within a second (code 4003). "
        "Clients may reconnect at once; to keep them out, ban the twin. No message is lost: "
        "undelivered messages wait in the queues.",
    )
    back = f"{reverse('console:sessions')}?{urlencode({'twin': twin})}"
    return act(request, question, perform, back, form)


def live_rows(found: list[LiveSession], workers: dict[str, str], kickable: bool) -> list[Row]:
    """Rows of sessions that are held now."""
    return [_live(session, workers, kickable) for session in found]


def ended_rows(found: list[Session], workers: dict[str, str]) -> list[Row]:
    """Rows of sessions that have ended."""
    return [_ended(session, workers) for session in found]


def worker_names() -> dict[str, str]:
    """`host/number` by boot id; none while Redis is away, which the table says."""
    try:
        return {each.boot_id: f"{each.host}/{each.slot}" for each in ops.list_workers()}
    except Away:
        return {}


def words(reason: str) -> str:
    """A reason as words."""
    return reason.replace("_", " ")


def _columns(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Columns as this relay shows them."""
    config = settings.RMB
    sbd, mux = config.sbd.enabled, config.mux.enabled
    served = {"protocol": sbd, "peer": sbd, "carrier": mux}
    return tuple(
        replace(each, optional=not served[each.key]) if each.key in served else each
        for each in columns
    )


def _filters(workers: dict[str, str]) -> tuple[Filter, ...]:
    return (
        Filter("protocol", "Protocol", [(each, each.upper()) for each in PROTOCOLS]),
        Filter("twin", "Twin", hint="a twin id"),
        Filter("sid", "Session id"),
        Filter("peer", "SBD key", hint="or its beginning"),
        Filter("address", "Address", hint="host or host:port"),
        Filter("carrier", "Carrier", [(each, each) for each in CARRIERS]),
        Filter("worker", "Worker", tuple(workers.items()), hint="boot id of the worker"),
    )


def tabs(current: str) -> list[Tab]:
    """The lists of the page.

    Args:
        current: the one that is shown, by the name of its address.
    """
    names = {"sessions": "Connected now", "session_history": "Ended"}
    if settings.RMB.mux.enabled:
        names[CONNECTIONS] = "Connections with streams"
    return [
        Tab(label, reverse(f"console:{name}"), name == current) for name, label in names.items()
    ]


def connection_url(worker: str, number: int) -> str:
    """Where the connection with a number at a worker is shown."""
    return reverse("console:connection", args=[worker, number])


def _live(session: LiveSession, workers: dict[str, str], kickable: bool) -> Row:
    values = {
        **_common(session, session.key, session.sid, workers),
        "address": session.address,
        "rate_in": session.rate_in,
        "rate_out": session.rate_out,
        "byte_rate_in": session.byte_rate_in,
        "byte_rate_out": session.byte_rate_out,
        "backlog": session.backlog,
    }
    actions = []
    if kickable:
        url = reverse("console:session_kick", args=[session.key])
        actions.append(Action("Kick", f"{url}?epoch={session.epoch}", danger=True))
    links = _links(session.twin)
    if session.stream is not None and session.connection is not None:
        url = connection_url(session.worker, session.connection)
        links["carrier"] = f"{url}?stream={session.stream}"
    return Row(values, links, actions)


def _ended(session: Session, workers: dict[str, str]) -> Row:
    sid = session.sid if session.sid_present else None
    lasted = session.closed_at - session.opened_at if session.closed_at else None
    values = {
        **_common(session, session.key_text, sid, workers),
        "address": session.remote,
        "closed_at": session.closed_at,
        "lasted_s": lasted.total_seconds() if lasted is not None else None,
        "reason": _reason(session.close_reason, session.protocol),
    }
    return Row(values, _links(session.twin))


def _common(
    session: LiveSession | Session, key: str, sid: str | None, workers: dict[str, str]
) -> dict[str, Any]:
    names = (
        "twin", "messages_in", "messages_out", "bytes_in", "bytes_out", "drops", "slowed",
        "user_agent", "opened_at",
    )  # fmt: skip
    return {
        **{name: getattr(session, name) for name in names},
        "protocol": session.protocol.upper(),
        "sid": '""' if sid == "" else sid,
        "peer": session.peer or None,
        "key": key,
        "carrier": "websocket" if session.stream is None else f"stream {session.stream}",
        "worker": workers.get(session.worker, session.slot),
        "boot_id": session.worker,
    }


def _reason(reason: str, protocol: str) -> State | None:
    if reason not in _REASONS:
        return State(words(reason), Tone.IDLE) if reason else None
    # `worker_lost` is the same for all protocols.
    meaning = _MEANINGS[protocol].get(reason) or _MEANINGS[RMB].get(reason, "")
    return State(words(reason), _TONES.get(reason, Tone.BAD), meaning)


def _links(twin: int | None) -> dict[str, str]:
    return {} if twin is None else {"twin": reverse("console:twin", args=[twin])}


def _kick_twin_url(twin: int) -> str:
    return reverse("console:twin_kick", args=[twin])
