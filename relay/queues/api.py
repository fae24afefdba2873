"""Queues over REST: headers of what waits, deleting and moving it. Payloads are never shown."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from ninja import Field, Query, Router, Schema

from relay.queues import services
from relay.queues.headers import Header
from relay.queues.walking import Queue
from relay.rest.caller import Request
from relay.rest.lines import EXPORTED, MEDIA_TYPES, lines
from relay.rest.operation import get, post
from relay.rest.paging import listed
from relay.rest.schema import Body, Page, PageQuery, TwinId, moment
from relay.sessions.models import MAX_SID_CHARS
from relay.sessions.rates import WINDOW_S

router = Router(tags=["queues"])

MAX_KEY_CHARS: Final = MAX_SID_CHARS + 11
ENTRY: Final = r"^[0-9]{1,19}-[0-9]{1,19}$"

QueueKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_KEY_CHARS,
        description="Of the session: `<twin>` or `<twin>:<session id>`.",
    ),
]
Entry = Annotated[str, Field(pattern=ENTRY, description="Id of a message in its queue.")]

QueueOrder = Literal[
    "twin", "messages", "size", "oldest", "newest", "rate_in", "rate_out",
    "-twin", "-messages", "-size", "-oldest", "-newest", "-rate_in", "-rate_out",
]  # fmt: skip


class QueueOut(Schema):
    """What waits for one session."""

    key: str
    twin: int
    sid: str | None = Field(
        description="Session id; null: the session without one, which is not an empty id."
    )
    connected: bool
    messages: int
    size_bytes: int = Field(description="Of Redis' memory, estimated.")
    oldest: datetime | None
    newest: datetime | None
    newest_entry: str = Field(description="Id of the last message: `up_to` of a purge.")
    rate_in: float = Field(
        description=f"Messages a second stored in it, over the last {WINDOW_S} s."
    )
    rate_out: float = Field(
        description=f"Messages a second delivered to its session, over the last {WINDOW_S} s."
    )


class HeaderOut(Schema):
    """Headers of one message."""

    entry: str
    at: datetime | None = Field(description="When it was stored.")
    size_bytes: int
    payload_bytes: int
    source: str
    destination: str
    uid: str
    kind: str
    command: str
    deadline: datetime | None = Field(description="By its own account.")
    expired: bool = Field(description="It will not be delivered.")
    tags_bytes: int
    problem: str = Field(description="What is wrong with the entry; empty: nothing.")


class QueueQuery(PageQuery):
    """Filters of the list."""

    twin: TwinId | None = None
    connected: Literal["true", "false"] | None = None
    order: QueueOrder = "twin"


class HeaderQuery(Schema):
    """Which queue."""

    key: QueueKey
    limit: int = Field(50, ge=1, le=500, description="Most items; fewer come where they are large.")
    cursor: Entry | None = Field(None, description="`next` of the page before.")


class KeyQuery(Schema):
    """Which queue."""

    key: QueueKey


class QueueExportQuery(KeyQuery):
    """What to export."""

    form: Literal["jsonl", "csv"] = "jsonl"


class PurgeIn(Body):
    """What is to go."""

    key: QueueKey
    up_to: Entry | None = Field(
        None,
        description="The last message that goes; needed but for a banned or removed twin.",
    )


class Purged(Schema):
    """What went."""

    purged: int


class MoveIn(Body):
    """From where to where: two sessions of one twin."""

    source: QueueKey
    target: QueueKey


class MovedOut(Schema):
    """How a move went."""

    moved: int
    expired: int = Field(description="Too old to be delivered anywhere; they stayed.")
    malformed: int = Field(description="Malformed entries, which stayed.")
    left: int = Field(description="All that is still in the queue.")
    stopped: str = Field(description="Why not all was looked at; empty: all was.")


@get(router, "/queues", action="queue.view", answer=Page[QueueOut])
def list_queues(request: Request, query: Query[QueueQuery]) -> Any:
    """Queues that hold messages.

    With `order=-rate_in` the queues that fill fastest now come first.
    """
    found = services.list_queues(
        twin=query.twin,
        connected=None if query.connected is None else query.connected == "true",
        order=query.order,
        limit=query.limit,
        cursor=query.cursor or "",
    )
    return listed(found, _queue)


@get(router, "/queues/one", action="queue.view", answer=QueueOut, missing=True)
def get_queue(request: Request, query: Query[KeyQuery]) -> Any:
    """What waits for one session."""
    return _queue(services.get_queue(query.key))


@get(router, "/queues/headers", action="queue.view", answer=Page[HeaderOut])
def list_queue_headers(request: Request, query: Query[HeaderQuery]) -> Any:
    """The messages of one queue by their headers, the oldest first."""
    found = services.list_headers(query.key, limit=query.limit, after=query.cursor or "")
    return listed(found, _header)


@get(router, "/queues/export", action="queue.export", answer=None, content=EXPORTED)
def export_queue(request: Request, query: Query[QueueExportQuery]) -> Any:
    """The headers of a whole queue, as lines of JSON or CSV."""
    found = services.export(query.key, query.form, actor=request.actor)
    return lines(found, MEDIA_TYPES[query.form], f"queue.{query.form}")


@post(router, "/queues/purge", action="queue.purge", answer=Purged)
def purge_queue(request: Request, body: PurgeIn) -> Any:
    """Delete what waits for one session that is not connected."""
    purged = services.purge(body.key, actor=request.actor, up_to=body.up_to or "")
    return Purged(purged=purged)


@post(router, "/queues/move", action="queue.move", answer=MovedOut)
def move_queue(request: Request, body: MoveIn) -> Any:
    """Move what waits for one session to another of the same twin.

    The other need not exist yet; if it is connected it gets the messages at once.
    """
    return asdict(services.move(body.source, body.target, actor=request.actor))


@post(router, "/twins/{twin}/purge", action="queue.purge", answer=Purged)
def purge_twin(request: Request, twin: TwinId) -> Any:
    """Delete what waits for a banned or removed twin."""
    return Purged(purged=services.purge_twin(twin, actor=request.actor))


def _queue(queue: Queue) -> QueueOut:
    return QueueOut(
        key=queue.key,
        twin=queue.twin,
        sid=queue.sid,
        connected=queue.connected,
        messages=queue.messages,
        size_bytes=queue.size_bytes,
        oldest=moment(queue.oldest_at),
        newest=moment(queue.newest_at),
        newest_entry=queue.newest,
        rate_in=queue.rate_in,
        rate_out=queue.rate_out,
    )


def _header(header: Header) -> HeaderOut:
    plain = (
        "entry", "size_bytes", "payload_bytes", "source", "destination", "uid", "kind", "command",
        "expired", "tags_bytes", "problem",
    )  # fmt: skip
    return HeaderOut(
        **{name: getattr(header, name) for name in plain},
        at=moment(header.at),
        deadline=moment(header.deadline),
    )
