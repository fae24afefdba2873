"""Sessions over REST: those that are held now, the history, and ending them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from ninja import Field, Query, Router, Schema

from relay.access.errors import NotFound
from relay.ops.control import MAX_REASON_CHARS
from relay.rest.caller import Request
from relay.rest.operation import get, post
from relay.rest.paging import listed, page
from relay.rest.schema import Body, Count, Page, PageQuery, RowId, Stamp, TwinId
from relay.sessions import listing, services
from relay.sessions.models import MAX_PEER_CHARS, MAX_REMOTE_CHARS, MAX_SID_CHARS, Session
from relay.sessions.rates import WINDOW_S

router = Router(tags=["sessions"])

MAX_KEY_CHARS: Final = MAX_SID_CHARS + 11
KEY_FORMS: Final = "`<twin>`, `<twin>:<session id>` or `sbd:<public key>`."
ORDERS: Final = {"id": "pk", "opened_at": "opened_at", "twin": "twin", "drops": "drops"}

LiveOrder = Literal[
    "opened", "twin", "messages_in", "messages_out", "bytes_in", "bytes_out", "backlog", "drops",
    "rate_in", "rate_out", "byte_rate_in", "byte_rate_out",
    "-opened", "-twin", "-messages_in", "-messages_out", "-bytes_in", "-bytes_out", "-backlog",
    "-drops", "-rate_in", "-rate_out", "-byte_rate_in", "-byte_rate_out",
]  # fmt: skip
"""Of `listing.ORDERS`."""

SessionKey = Annotated[
    str,
    Field(min_length=1, max_length=MAX_KEY_CHARS, description=KEY_FORMS),
]
Reason = Annotated[
    str, Field(max_length=MAX_REASON_CHARS, description="Reason, for the log and the audit log.")
]


Protocol = Literal["rmb", "sbd"]
"""Of `models.PROTOCOLS`."""
Carrier = Annotated[
    Literal["websocket", "streams"],
    Field(description="Only sessions with their own websocket, or only those on streams."),
]
"""Of `models.CARRIERS`."""
_TWIN: Final = "Id of the twin; null for SBD, whose clients are not twins."
_SID: Final = "Session id; null: the session without an id. An empty id is another session."
_CONNECTION: Final = (
    "Number, at its worker, of the connection that carries the session on a stream; null: the "
    "session has its own websocket."
)
_STREAM: Final = "Id of the stream in its connection; null: the session has its own websocket."
_PEER: Final = "Public key of an SBD client, in base64url without padding; null for RMB."


class LiveSessionOut(Schema):
    """An open session."""

    key: str = Field(description=KEY_FORMS)
    protocol: Protocol
    twin: int | None = Field(description=_TWIN)
    sid: str | None = Field(description=_SID)
    peer: str | None = Field(description=_PEER)
    epoch: int = Field(description="Number of the connection.")
    worker: str = Field(description="Boot id of the worker that holds it.")
    slot: str
    connection: int | None = Field(description=_CONNECTION)
    stream: int | None = Field(description=_STREAM)
    address: str
    user_agent: str
    opened_at: datetime
    messages_in: int = Field(
        description="Messages from the client. This and the other counts are up to 15 s old."
    )
    messages_out: int
    bytes_in: int
    bytes_out: int
    backlog: int = Field(description="Messages on the way to the client.")
    drops: int = Field(description="Messages from or to the session that were not delivered.")
    slowed: int = Field(
        description="Times the relay stopped reading from the client because it refused messages."
    )
    rate_in: float = Field(
        description=f"Messages a second from its client, over the last {WINDOW_S} s."
    )
    rate_out: float = Field(
        description=f"Messages a second to its client, over the last {WINDOW_S} s."
    )
    byte_rate_in: float = Field(
        description=f"Bytes a second from its client, over the last {WINDOW_S} s."
    )
    byte_rate_out: float = Field(
        description=f"Bytes a second to its client, over the last {WINDOW_S} s."
    )


class SessionOut(Schema):
    """One connection of a twin or of an SBD client."""

    id: int
    key: str = Field(alias="key_text", description=KEY_FORMS)
    protocol: Protocol
    twin: int | None = Field(description=_TWIN)
    sid: str | None = Field(description=_SID)
    peer: str | None = Field(description=_PEER)
    epoch: int = Field(
        description="Number of the connection; newer connections of a session have higher ones."
    )
    worker: str = Field(description="Boot id of the worker.")
    slot: str
    connection: int | None = Field(description=_CONNECTION)
    stream: int | None = Field(description=_STREAM)
    address: str = Field(alias="remote")
    user_agent: str
    opened_at: datetime
    closed_at: datetime | None
    close_reason: str
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    backlog: int
    drops: int
    slowed: int

    @staticmethod
    def resolve_sid(session: Session) -> str | None:
        return session.sid if session.sid_present else None

    @staticmethod
    def resolve_peer(session: Session) -> str | None:
        return session.peer or None


PeerBeginning = Annotated[
    str,
    Field(max_length=MAX_PEER_CHARS, description="Public key of an SBD client, or its beginning."),
]


class LiveQuery(PageQuery):
    """Filters of the sessions that are held now."""

    twin: TwinId | None = None
    sid: str | None = Field(None, max_length=MAX_SID_CHARS)
    protocol: Protocol | None = None
    peer: PeerBeginning | None = None
    worker: str | None = Field(None, max_length=64, description="Boot id of the worker.")
    address: str | None = Field(None, max_length=MAX_REMOTE_CHARS)
    carrier: Carrier | None = None
    order: LiveOrder = "-opened"


class SessionQuery(PageQuery):
    """Filters of the history."""

    twin: TwinId | None = None
    sid: str | None = Field(None, max_length=MAX_SID_CHARS)
    protocol: Protocol | None = None
    peer: PeerBeginning | None = None
    open: Literal["true", "false"] | None = Field(
        None, description="true: only open sessions; false: only ended ones."
    )
    worker: str | None = Field(None, max_length=64, description="Boot id of the worker.")
    address: str | None = Field(None, max_length=MAX_REMOTE_CHARS)
    carrier: Carrier | None = None
    reason: str | None = Field(None, max_length=32, description="Reason of the end.")
    since: Stamp | None = None
    until: Stamp | None = None
    order: Literal["id", "-id", "opened_at", "-opened_at", "twin", "-twin", "drops", "-drops"] = (
        "-opened_at"
    )


class TotalQuery(Schema):
    """Which sessions are counted."""

    protocol: Protocol | None = None


class TotalOut(Schema):
    """Number of open sessions."""

    total: int


class KickIn(Body):
    """Session to end."""

    key: SessionKey
    epoch: Count | None = Field(
        None, description="Number of the connection to end; null: the present one."
    )
    reason: Reason = ""


class Kicked(Schema):
    """The connection that the relay ends."""

    epoch: int


class KickTwinIn(Body):
    """Reason to end the sessions."""

    reason: Reason = ""


class KickedTwin(Schema):
    """Number of sessions that the relay ends."""

    sessions: int


@get(router, "/sessions", action="session.view", answer=Page[LiveSessionOut])
def list_sessions(request: Request, query: Query[LiveQuery]) -> Any:
    """List open sessions.

    They are read from Redis; a new session is listed within two seconds. `order=-rate_in` sorts
    them by the messages that they send now, the highest rate first.
    """
    found = listing.live(
        twin=query.twin,
        sid=query.sid,
        protocol=query.protocol or "",
        peer=query.peer or "",
        worker=query.worker or "",
        address=query.address or "",
        carrier=query.carrier or "",
        order=query.order,
        limit=query.limit,
        cursor=query.cursor or "",
    )
    return listed(found, asdict)


@get(router, "/sessions/total", action="session.view", answer=TotalOut)
def count_sessions(request: Request, query: Query[TotalQuery]) -> Any:
    """Count the open sessions of RMB and SBD."""
    return TotalOut(total=listing.total(query.protocol or ""))


@get(router, "/sessions/history", action="session.view", answer=Page[SessionOut])
def list_session_history(request: Request, query: Query[SessionQuery]) -> Any:
    """List open and past sessions.

    They are read from the database, which is some seconds behind.
    """
    rows = listing.history(
        twin=query.twin,
        sid=query.sid,
        protocol=query.protocol or "",
        peer=query.peer or "",
        reason=query.reason or "",
        address=query.address or "",
        carrier=query.carrier or "",
        worker=query.worker or "",
        open=None if query.open is None else query.open == "true",
        since=query.since,
        until=query.until,
    )
    return page(query, rows, ORDERS, nullable=listing.NULLABLE)


@get(router, "/sessions/history/{session}", action="session.view", answer=SessionOut)
def get_session(request: Request, session: RowId) -> Any:
    """Get a session of the history."""
    found = Session.objects.filter(pk=session).first()
    if found is None:
        raise NotFound(f"there is no session {session}")
    return found


@post(router, "/sessions/kick", action="session.kick", answer=Kicked, missing=True)
def kick_session(request: Request, body: KickIn) -> Any:
    """End a session within a second.

    With `epoch`, only that connection ends; a newer one of the same session stays.
    """
    epoch = services.kick(body.key, actor=request.actor, epoch=body.epoch, reason=body.reason)
    return Kicked(epoch=epoch)


@post(router, "/twins/{twin}/kick", action="session.kick", answer=KickedTwin)
def kick_twin(request: Request, twin: TwinId, body: KickTwinIn) -> Any:
    """End all sessions of a twin within a second.

    The twin can connect again; ban it to prevent that.
    """
    told = services.kick_twin(twin, actor=request.actor, reason=body.reason)
    return KickedTwin(sessions=told)
