"""REST operations for connections with streams: list them, get one and its streams, end one."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from ninja import Field, Path, Query, Router, Schema

from relay.mux import listing, services
from relay.mux.listing import Stream
from relay.ops.control import MAX_REASON_CHARS
from relay.rest.caller import Request
from relay.rest.operation import get, post
from relay.rest.paging import listed
from relay.rest.schema import Body, Page, PageQuery
from relay.sessions.models import MAX_REMOTE_CHARS

router = Router(tags=["sessions"])

BootId = Annotated[str, Field(min_length=1, max_length=64, description="Boot id of the worker.")]
Reason = Annotated[
    str, Field(max_length=MAX_REASON_CHARS, description="Reason, for the log and the audit log.")
]
Number = Annotated[int, Field(ge=1, le=2**62, description="Of the connection, at its worker.")]


class ConnectionOut(Schema):
    """A connection with streams that carry sessions; its figures are up to 2 s old."""

    id: str = Field(description="`<worker>/<number>`.")
    worker: str = Field(description="Boot id of the worker that serves it.")
    number: int
    address: str
    user_agent: str
    opened_at: datetime
    streams: int = Field(description="Streams that are open.")
    sessions: int = Field(description="Streams whose clients have signed in.")
    queued_bytes: int = Field(description="Bytes that wait until the client grants them.")
    held_bytes: int = Field(description="Bytes from the client that wait to be processed.")
    unsent_bytes: int = Field(description="Bytes that the client's TCP connection has not taken.")
    stalls: int = Field(
        description="Times that a stream waited because the client granted no more bytes."
    )
    bytes_in: int = Field(description="Bytes received on streams.")
    bytes_out: int = Field(description="Bytes sent on streams.")


class StreamOut(Schema):
    """One stream of a connection."""

    id: int = Field(description="Id of the stream within its connection.")
    session: str | None = Field(description="Key of its session; null before the sign-in.")
    state: str = Field(description="signing_in, open, closing or closed.")
    credit: int = Field(description="Bytes that the client has granted and that were not sent.")
    queued_bytes: int = Field(description="Bytes that wait until the client grants them.")
    held_bytes: int = Field(description="Bytes from the client that wait to be processed.")


class KickConnectionIn(Body):
    """Reason for ending a connection."""

    reason: Reason = ""


class KickedConnection(Schema):
    """Result of ending a connection."""

    sessions: int = Field(description="Sessions on the connection when the worker last reported.")


class ConnectionQuery(PageQuery):
    """Filters of the connections."""

    worker: BootId | None = None
    address: str | None = Field(None, max_length=MAX_REMOTE_CHARS)
    order: Literal[
        "opened", "streams", "sessions", "queued_bytes", "held_bytes", "unsent_bytes", "stalls",
        "bytes_in", "bytes_out", "-opened", "-streams", "-sessions", "-queued_bytes", "-held_bytes",
        "-unsent_bytes", "-stalls", "-bytes_in", "-bytes_out",
    ] = "-streams"  # fmt: skip


class StreamQuery(PageQuery):
    """Filters of the streams."""

    stream: int | None = Field(None, ge=0, le=2**62, description="Id of the stream.")
    order: Literal[
        "id", "credit", "queued_bytes", "held_bytes",
        "-id", "-credit", "-queued_bytes", "-held_bytes",
    ] = "-queued_bytes"  # fmt: skip


@get(router, "/connections", action="session.view", answer=Page[ConnectionOut])
def list_connections(request: Request, query: Query[ConnectionQuery]) -> Any:
    """List connections with streams.

    For each worker, the list has the 500 connections with the most streams. The figures are up to
    2 s old.
    """
    found = listing.live(
        worker=query.worker or "",
        address=query.address or "",
        order=query.order,
        limit=query.limit,
        cursor=query.cursor or "",
    )
    return listed(found, asdict)


@get(router, "/connections/{worker}/{number}", action="session.view", answer=ConnectionOut)
def get_connection(request: Request, worker: Path[BootId], number: Path[Number]) -> Any:
    """Get a connection."""
    return asdict(listing.get(worker, number))


@post(router, "/connections/{worker}/{number}/kick", action="session.kick", answer=KickedConnection)
def kick_connection(
    request: Request, worker: Path[BootId], number: Path[Number], body: KickConnectionIn
) -> Any:
    """End a connection and all its sessions, within a second.

    The client may connect again at once.
    """
    found = services.kick(worker, number, actor=request.actor, reason=body.reason)
    return KickedConnection(sessions=found.sessions)


@get(
    router, "/connections/{worker}/{number}/streams", action="session.view", answer=Page[StreamOut]
)
def list_streams(
    request: Request, worker: Path[BootId], number: Path[Number], query: Query[StreamQuery]
) -> Any:
    """List streams of a connection.

    Each worker publishes details of at most 2,000 streams over all its connections: those with the
    most bytes that wait.
    """
    listing.get(worker, number)
    found = listing.streams(
        worker,
        number,
        stream=query.stream,
        order=query.order,
        limit=query.limit,
        cursor=query.cursor or "",
    )
    return listed(found, _stream)


def _stream(stream: Stream) -> dict[str, Any]:
    return stream._asdict() | {"session": stream.session or None}
