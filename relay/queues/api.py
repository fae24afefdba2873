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
        description="Session of the queue: `<twin>` or `<twin>:<session id>`.",
    ),
]
Entry = Annotated[str, Field(pattern=ENTRY, description="Id of a message in its queue.")]

QueueOrder = Literal[
    "twin", "messages", "size", "oldest", "newest", "rate_in", "rate_out",
    "-twin", "-messages", "-size", "-oldest", "-newest", "-rate_in", "-rate_out",
]  # fmt: skip


class QueueOut(Schema):
    """Queue of one session."""

    key: str
    twin: int
    sid: str | None = Field(
        description="Session id; null: the session without an id. An empty id is another session."
    )
    connected: bool
    messages: int
    size_bytes: int = Field(description="Estimated bytes of Redis' memory.")
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
    at: datetime | None = Field(description="Time at which the queue stored it.")
    size_bytes: int
    payload_bytes: int
    source: str
    destination: str
    uid: str
    kind: str
    command: str
    deadline: datetime | None = Field(description="Deadline that its sender gave.")
    expired: bool = Field(description="Whether its time is up; the relay will not deliver it.")
    tags_bytes: int
    problem: str = Field(description="What is wrong with the entry; empty: nothing.")


class QueueQuery(PageQuery):
    """Filters of the list."""

    twin: TwinId | None = None
    connected: Literal["true", "false"] | None = None
    order: QueueOrder = "twin"


class HeaderQuery(Schema):
    """Query of the headers of a queue."""

    key: QueueKey
    limit: int = Field(50, ge=1, le=500, description="Highest number of items.")
    cursor: Entry | None = Field(None, description="`next` of the previous page.")


class KeyQuery(Schema):
    """Query that names a queue."""

    key: QueueKey


class QueueExportQuery(KeyQuery):
    """Query of an export."""

    form: Literal["jsonl", "csv"] = "jsonl"


class PurgeIn(Body):
    """Messages to delete."""

    key: QueueKey
    up_to: Entry | None = Field(
        None,
        description="Id of the last message to delete; required unless the twin is banned or "
        "removed.",
    )


class Purged(Schema):
    """Number of deleted messages."""

    purged: int


class MoveIn(Body):
    """Two sessions of the same twin."""

    source: QueueKey
    target: QueueKey


class MovedOut(Schema):
    """Result of a move."""

    moved: int
    expired: int = Field(description="Expired messages, which stayed.")
    malformed: int = Field(description="Malformed entries, which stayed.")
    left: int = Field(description="Messages still in the queue.")
    stopped: str = Field(description="Reason why the move stopped early; empty: it did not.")


@get(router, "/queues", action="queue.view", answer=Page[QueueOut])
def list_queues(request: Request, query: Query[QueueQuery]) -> Any:
    """List queues that hold messages.

    `order=-rate_in` sorts them by the rate at which they fill, the highest first.
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
    """Get the queue of one session."""
    return _queue(services.get_queue(query.key))


@get(router, "/queues/headers", action="queue.view", answer=Page[HeaderOut])
def list_queue_headers(request: Request, query: Query[HeaderQuery]) -> Any:
    """List the headers of the messages in a queue, the oldest first."""
    found = services.list_headers(query.key, limit=query.limit, after=query.cursor or "")
    return listed(found, _header)


@get(router, "/queues/export", action="queue.export", answer=None, content=EXPORTED)
def export_queue(request: Request, query: Query[QueueExportQuery]) -> Any:
    """Export the headers of all messages in a queue, as lines of JSON or CSV."""
    found = services.export(query.key, query.form, actor=request.actor)
    return lines(found, MEDIA_TYPES[query.form], f"queue.{query.form}")


@post(router, "/queues/purge", action="queue.purge", answer=Purged)
def purge_queue(request: Request, body: PurgeIn) -> Any:
    """Delete the queue of a session that is not connected."""
    purged = services.purge(body.key, actor=request.actor, up_to=body.up_to or "")
    return Purged(purged=purged)


@post(router, "/queues/move", action="queue.move", answer=MovedOut)
def move_queue(request: Request, body: MoveIn) -> Any:
    """Move the messages of a queue to another session of the same twin.

    The other session need not exist yet. If it is connected, it receives the messages at once.
    """
    return asdict(services.move(body.source, body.target, actor=request.actor))


@post(router, "/twins/{twin}/purge", action="queue.purge", answer=Purged)
def purge_twin(request: Request, twin: TwinId) -> Any:
    """Delete the queues of a banned or removed twin."""
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
