"""Sessions as a resource: those connected now, the history, and ending them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Final

from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from proto.identity.bounds import MAX_TWIN
from proto.rmb.reasons import SESSIONS, SessionReason
from proto.sbd.errors import DropReason
from relay.access.actor import Actor
from relay.access.errors import Away, NotFound
from relay.dashboard.states import State, Tone
from relay.ops import services as ops
from relay.ops.control import MAX_REASON_CHARS
from relay.ops.paging import Page
from relay.ops.storable import MAX_ID
from relay.ops.wording import counted
from relay.resources.declaration import (
    Ask,
    Confirmation,
    Console,
    Identity,
    Resource,
    Shape,
    Values,
    Verb,
)
from relay.resources.fetching import stored
from relay.resources.fields import Argument, Field, Filter, Look, Order, Unit, Where
from relay.resources.values import Choice, Flag, Moment, Number, Real, Text
from relay.sbd.options import MEANINGS, EndReason
from relay.sessions import directory, listing, services
from relay.sessions.listing import LiveSession
from relay.sessions.models import (
    CARRIERS,
    MAX_PEER_CHARS,
    MAX_REMOTE_CHARS,
    MAX_SID_CHARS,
    PROTOCOLS,
    RMB,
    SBD,
    Session,
)
from relay.sessions.rates import WINDOW_S

CONNECTIONS: Final = "connections"
"""URL name of the list of connections."""
MAX_KEY_CHARS: Final = MAX_SID_CHARS + 11
KEY_FORMS: Final = "`<twin>`, `<twin>:<session id>` or `sbd:<public key>`."
_OLD: Final = "Up to 15 s old"
_OVER: Final = f"over the last {WINDOW_S} s."

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
_DATA: Final = Where.DATA | Where.TERMINAL

Either = LiveSession | Session


def worker_names() -> dict[str, str]:
    """Return `host/number` by boot id; empty while Redis does not answer, as the table reports."""
    try:
        return {each.boot_id: f"{each.host}/{each.slot}" for each in ops.list_workers()}
    except Away:
        return {}


def connection_url(worker: str, number: int) -> str:
    """Return the URL of the page of the connection with a number at a worker."""
    return reverse("console:connection", args=[worker, number])


def _key(session: Either) -> str:
    return session.key if isinstance(session, LiveSession) else session.key_text


def _sid(session: Either) -> str | None:
    named = isinstance(session, LiveSession) or session.sid_present
    return session.sid if named else None


def _address(session: Either) -> str:
    return session.address if isinstance(session, LiveSession) else session.remote


def _reason(session: Session) -> State | None:
    reason = session.close_reason
    text = reason.replace("_", " ")
    if reason not in _REASONS:
        return State(text, Tone.IDLE) if reason else None
    # `worker_lost` is the same for all protocols.
    meaning = _MEANINGS[session.protocol].get(reason) or _MEANINGS[RMB].get(reason, "")
    return State(text, _TONES.get(reason, Tone.BAD), meaning)


def _twin_url(session: Either) -> str:
    return "" if session.twin is None else reverse("console:twin", args=[session.twin])


def _connection_url(session: Either) -> str:
    if not isinstance(session, LiveSession) or session.stream is None or session.connection is None:
        return ""
    return f"{connection_url(session.worker, session.connection)}?stream={session.stream}"


def _carrier(session: Either) -> str:
    return "websocket" if session.stream is None else f"stream {session.stream}"


def _lasted_s(session: Either) -> float | None:
    closed = timezone.now() if isinstance(session, LiveSession) else session.closed_at
    return (closed - session.opened_at).total_seconds() if closed else None


def _with_sbd() -> bool:
    return bool(settings.RMB.sbd.enabled)


def _with_streams() -> bool:
    return bool(settings.RMB.mux.enabled)


_FIELDS: Final = (
    Field("protocol", Choice(PROTOCOLS), "Protocol of the session.", shown=_with_sbd,
          show=lambda session: session.protocol.upper()),
    Field("twin", Number(), "Id of the twin; null for SBD, whose clients are not twins.", null=True,
          link=_twin_url),
    Field("sid", Text(),
          "Session id; null: the session without an id. An empty id is another session.",
          title="Session id", null=True, look=Look.CODE, read=_sid,
          show=lambda session: '""' if _sid(session) == "" else _sid(session)),
    Field("peer", Text(),
          "Public key of an SBD client, in base64url without padding; null for RMB.",
          title="SBD key", null=True, look=Look.CODE, shown=_with_sbd,
          read=lambda session: session.peer or None),
    Field("key", Text(), KEY_FORMS, look=Look.CODE, shown=False, quoted=True, read=_key),
    Field("epoch", Number(),
          "Number of the connection; newer connections of a session have higher ones.",
          where=Where.DATA),
    Field("address", Text(), "Address of the client.", look=Look.CODE, read=_address),
    Field("carrier", Text(), "Own websocket, or one of many streams of a connection.",
          where=Where.CONSOLE, look=Look.LINE, read=_carrier, link=_connection_url,
          shown=_with_streams),
    Field("connection", Number(), "Number, at its worker, of the connection that carries the "
          "session on a stream; null: the session has its own websocket.", null=True,
          where=Where.DATA),
    Field("stream", Number(),
          "Id of the stream in its connection; null: the session has its own websocket.", null=True,
          where=_DATA),
    Field("worker", Text(), "Boot id of the worker that holds or held it.",
          where=Where.DATA),
    Field("worker", Text(), "Host and number of the worker.", where=Where.CONSOLE,
          show=attrgetter("slot"), labels=worker_names),
    Field("boot_id", Text(), "Boot id of the worker.", where=Where.CONSOLE, look=Look.CODE,
          shown=False, read=attrgetter("worker")),
    Field("slot", Text(), "Number of the worker on its host.", where=_DATA),
    Field("opened_at", Moment(), "When it was opened.", title="Connected"),
    Field("lasted_s", Real(), "Seconds since it was opened.", heading="UP", unit=Unit.SECONDS,
          where=Where.TERMINAL, read=_lasted_s),
    *(
        Field(f"{kind}rate_{way}", Real(), f"{what} a second {whose} its client, {_OVER}",
              title=f"{title}{way}".capitalize(), heading=f"{title}{way}/s".upper(), unit=unit,
              shown=not kind)
        for kind, what, title, unit in (
            ("", "Messages", "", Unit.PER_SECOND),
            ("byte_", "Bytes", "traffic ", Unit.BYTES_PER_SECOND),
        )
        for way, whose in (("in", "from"), ("out", "to"))
    ),
    *(
        Field(f"{kind}_{way}", Number(), f"{kind.capitalize()} {whose} the client. {_OLD}.",
              heading=way.upper(), unit=unit, shown=False)
        for kind, unit in (("messages", Unit.COUNT), ("bytes", Unit.BYTES))
        for way, whose in (("in", "from"), ("out", "to"))
    ),
    Field("backlog", Number(), f"Messages on the way to the client. {_OLD}.", unit=Unit.COUNT),
    Field("drops", Number(),
          f"Messages from or to the session that were not delivered. {_OLD}.", unit=Unit.COUNT),
    Field("slowed", Number(), "Times the relay stopped reading from the client because it refused "
          f"messages. {_OLD}.", unit=Unit.COUNT, shown=False),
    Field("user_agent", Text(), "User-Agent of the client.", title="Client", look=Look.CODE,
          shown=False),
)  # fmt: skip
_FIELD: Final = {each.name: each for each in _FIELDS}


def _fields(*without: str) -> tuple[Field, ...]:
    return tuple(each for each in _FIELDS if each.name not in without)


_COMMON_FILTERS: Final = (
    Filter("protocol", Choice(PROTOCOLS), "Only sessions of this protocol.",
           labels=lambda: {each: each.upper() for each in PROTOCOLS}),
    Filter("twin", Number(1, MAX_TWIN), "Id of a twin.", hint="a twin id", positional=True),
    Filter("sid", Text(MAX_SID_CHARS), "Session id; commands and REST take an empty one.",
           title="Session id"),
    Filter("peer", Text(MAX_PEER_CHARS), "Public key of an SBD client, or its beginning.",
           title="SBD key", hint="or its beginning"),
    Filter("address", Text(MAX_REMOTE_CHARS), "Address of the client, with its port or without.",
           hint="host or host:port"),
    Filter("carrier", Choice(CARRIERS),
           "Only sessions with their own websocket, or only those on streams."),
    Filter("worker", Text(64), "Boot id of the worker.", hint="boot id of the worker",
           labels=worker_names),
)  # fmt: skip
_REASON: Final = Argument(
    "reason", Text(MAX_REASON_CHARS), "Reason, for the log and the audit log.",
    required=False, default="", asked=True,
)  # fmt: skip


def _tabs() -> Mapping[str, str]:
    names = {"sessions": "Connected now", "session_history": "Ended"}
    return {**names, CONNECTIONS: "Connections with streams"} if _with_streams() else names


def _kick(actor: Actor, key: str, epoch: int | None, reason: str) -> Values:
    return {"epoch": services.kick(key, actor=actor, epoch=epoch, reason=reason)}


def _confirm_kick(given: Values) -> Confirmation:
    told = (
        "The relay ends the connection within a second, without a close frame. The "
        "client may reconnect at once; to keep it out, ban its key. The relay drops "
        "packets for the client until it reconnects."
        if directory.protocol_of(given["key"]) == SBD
        else "The relay closes the connection within a second (code 4003). The client may "
        "reconnect at once; to keep it out, ban the twin. No message is lost: "
        "undelivered messages wait in its queue."
    )
    return Confirmation(f"Kick session {given['key']}", told)


KICK: Final = Verb(
    name="kick", noun="session", title="Kick", action="session.kick", danger=True, missing=True,
    summary="End a session within a second",
    details="With `epoch`, only that connection ends; a newer one of the same session stays.",
    path="sessions/kick",
    arguments=(
        Argument("key", Text(MAX_KEY_CHARS, 1), KEY_FORMS),
        Argument("epoch", Number(), "Number of the connection to end; null: the present one.",
                 required=False),
        _REASON,
    ),
    answer=(Field("epoch", Number(), "Number of the connection."),),
    takes=Shape("KickIn", "Session to end."),
    gives=Shape("Kicked", "The connection that the relay ends."),
    of_row=lambda session: {"key": session.key, "epoch": session.epoch},
    run=_kick, confirm=_confirm_kick,
    done=lambda given, _: f"session {given['key']} will end within a second",
)  # fmt: skip


def _kick_twin(actor: Actor, twin: int, reason: str) -> Values:
    return {"sessions": services.kick_twin(twin, actor=actor, reason=reason)}


def _confirm_kick_twin(given: Values) -> Confirmation:
    twin = given["twin"]
    return Confirmation(
        f"Kick all sessions of twin {twin}",
        f"The relay closes all its connections (now {listing.open_of([twin]).get(twin, 0):,}) "
        "within a second (code 4003). Clients may reconnect at once; to keep them out, ban the "
        "twin. No message is lost: undelivered messages wait in the queues.",
    )


KICK_TWIN: Final = Verb(
    name="kick", noun="twin", title="Kick all of the twin", action="session.kick", danger=True,
    summary="End all sessions of a twin within a second",
    details="The twin can connect again; ban it to prevent that.",
    path="twins/{twin}/kick", page="twins/{twin}/kick",
    arguments=(Argument("twin", Number(1, MAX_TWIN), "Id of a twin."), _REASON),
    answer=(Field("sessions", Number(), "Sessions that end.", unit=Unit.COUNT),),
    takes=Shape("KickTwinIn", "Reason to end the sessions."),
    gives=Shape("KickedTwin", "Number of sessions that the relay ends."),
    of_list=lambda given: {"twin": given["twin"]} if "twin" in given else None,
    run=_kick_twin, confirm=_confirm_kick_twin,
    done=lambda given, answer: f"{counted(answer['sessions'], 'session')} of twin {given['twin']} "
    "will end within a second",
)  # fmt: skip


def _live(ask: Ask) -> Page[LiveSession]:
    return listing.live(**ask.filters, order=ask.order, limit=ask.limit, cursor=ask.cursor)


LIVE: Final = Resource(
    name="sessions", noun="session", title="Sessions", tag="sessions", action="session.view",
    summary="List open sessions",
    details="They are read from Redis; a new session is listed within two seconds. "
    "`order=-rate_in` sorts them by the messages that they send now, the highest rate first.",
    schema=Shape("LiveSessionOut", "An open session."),
    fields=_fields(),
    filters=_COMMON_FILTERS,
    orders=tuple(Order(each, "opened_at" if each == "opened" else "") for each in listing.ORDERS),
    order="-opened", fetch=_live, verbs=(KICK, KICK_TWIN),
    console=Console(live=True, empty="No session is connected.", tabs=_tabs),
    terminal=("lasted_s", "rate_in", "rate_out", "messages_in", "messages_out", "backlog", "drops",
              "address", "stream", "slot", "key"),
)  # fmt: skip


def _get(number: int) -> Session:
    found = Session.objects.filter(pk=number).first()
    if found is None:
        raise NotFound(f"there is no session {number}")
    return found


_HISTORY_FIELDS: Final = (
    Field("id", Number(), "Number of the row.", where=Where.DATA),
    *_fields("opened_at", "lasted_s", "rate_in", "rate_out", "byte_rate_in", "byte_rate_out",
             "messages_in", "messages_out", "bytes_in", "bytes_out", "backlog", "drops", "slowed",
             "user_agent"),
    replace(_FIELD["opened_at"], shown=False),
    Field("closed_at", Moment(), "When it ended; null: it is open.", title="Ended", null=True),
    replace(_FIELD["lasted_s"], description="Seconds between start and end.", title="Lasted",
            where=Where.CONSOLE),
    Field("close_reason", Text(), "Reason of the end; empty: it is open.", title="End",
          look=Look.STATE, show=_reason),
    *(replace(_FIELD[f"messages_{way}"], title=way.capitalize(), shown=True)
      for way in ("in", "out")),
    *(_FIELD[name] for name in ("bytes_in", "bytes_out")),
    replace(_FIELD["backlog"], where=Where.DATA),
    *(_FIELD[name] for name in ("drops", "slowed", "user_agent")),
)  # fmt: skip

HISTORY: Final = Resource(
    name="session_history", noun="session", title="Sessions", tag="sessions",
    path="sessions/history", word="history", action="session.view",
    summary="List open and past sessions",
    details="They are read from the database, which is some seconds behind.",
    schema=Shape("SessionOut", "One connection of a twin or of an SBD client."),
    fields=_HISTORY_FIELDS,
    filters=(
        *_COMMON_FILTERS,
        Filter("open", Flag(), "true: only open sessions; false: only ended ones."),
        Filter("reason", Text(32), "Reason of the end.", title="End",
               labels=lambda: {each: each.replace("_", " ") for each in _REASONS}),
        Filter("since", Moment(), "Only sessions that were opened at this time or later.",
               where=_DATA),
        Filter("until", Moment(), "Only sessions that were opened before this time.",
               where=_DATA),
    ),
    orders=(Order("id", where=_DATA), Order("opened_at"), Order("twin"), Order("drops"),
            Order("ended", "closed_at", where=Where.CONSOLE)),
    order="-opened_at",
    fetch=stored(listing.history, {"id": "pk", "opened_at": "opened_at", "twin": "twin",
                                   "drops": "drops", "ended": "closed_at"}, listing.NULLABLE),
    identity=Identity("session", Number(1, MAX_ID), "Number of a row of the history.", _get,
                      "Get a session of the history", "closed_at", read=attrgetter("pk")),
    console=Console(order="-ended", fixed={"open": False}, table="sessions-ended",
                    empty="No session has ended yet.", tabs=_tabs),
    terminal=("opened_at", "closed_at", "close_reason", "key", "address"),
)  # fmt: skip

RESOURCES: Final = (LIVE, HISTORY)
