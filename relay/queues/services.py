"""What operators see of queues and do with them.

They see headers only (`relay.queues.headers`). Purging and moving never touch the queue of a
connected session: what its client already has is not known here. For a twin that exists and is not
banned, an operator purges one queue at a time, and only messages that the operator has seen: the
call names the queue and the last message to delete. All queues of a twin can be purged at once only
if it is banned or was removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.conf import settings
from redis.exceptions import RedisError

from relay.access.actor import Actor
from relay.access.errors import Away, Conflict, Invalid, NotFound
from relay.audit import services as audit
from relay.limits.models import TwinLimit
from relay.ops import csv_text, paging
from relay.ops.paging import Page
from relay.ops.redis_client import client
from relay.queues import headers, moving, purging, walking
from relay.queues.ages import SURVEY, Ages
from relay.queues.batch import QueuePolicy
from relay.queues.headers import Header
from relay.queues.moving import Moved
from relay.queues.purging import Waiting
from relay.queues.walking import Queue
from relay.twins.models import Twin

FORMS: Final = ("jsonl", "csv")
EXPORTED: Final = (
    "entry", "at", "size_bytes", "payload_bytes", "source", "destination", "uid", "kind",
    "command", "deadline", "expired", "tags_bytes", "problem",
)  # fmt: skip


def list_queues(
    *,
    twin: int | None = None,
    connected: bool | None = None,
    order: str = "twin",
    limit: int = 100,
    cursor: str = "",
) -> Page[Queue]:
    """Return a page of the queues that hold messages (see `relay.queues.walking.find`).

    Raises:
        Invalid, Away
    """
    try:
        return walking.find(
            client(), twin=twin, connected=connected, order=order, limit=limit, cursor=cursor
        )
    except RedisError as error:
        raise _away(error) from error


def get_queue(key: str) -> Queue:
    """Return the queue of one session.

    Raises:
        Invalid, Away
        NotFound: The queue holds no messages.
    """
    try:
        found = walking.one(client(), key)
    except RedisError as error:
        raise _away(error) from error
    if found is None:
        raise NotFound(f"nothing waits for {key}")
    return found


def ages() -> Ages:
    """Return how long the messages in all queues have been waiting, as of some seconds ago.

    Raises:
        Away
    """
    try:
        return SURVEY.look(client())
    except RedisError as error:
        raise _away(error) from error


def list_headers(key: str, *, limit: int = 100, after: str = "") -> Page[Header]:
    """Return a page of the headers of one queue's messages, the oldest first.

    Args:
        key: Key of the session.
        limit: Maximum number of items on the page.
        after: Id of the last entry of the previous page.

    Raises:
        Invalid, Away
    """
    walking.parse(key)
    wanted = paging.bounded(limit)
    if after and not headers.is_entry(after):
        raise Invalid(fields={"after": "is not the id of an entry"})
    found: list[Header] = []
    try:
        while len(found) < wanted:
            page = headers.read(client(), key, after=after, count=wanted - len(found))
            if not page:
                return Page(found, "")
            found += page
            after = page[-1].entry
        return Page(found, after if headers.read(client(), key, after=after, count=1) else "")
    except RedisError as error:
        raise _away(error) from error


def in_good_standing(twin: int) -> bool:
    """Check whether a twin may still fetch its messages: it exists and is not banned."""
    limit = TwinLimit.objects.filter(twin=twin).first()
    return Twin.objects.filter(pk=twin).exists() and not (limit and limit.ban_holds())


def purge(key: str, *, actor: Actor, up_to: str = "") -> int:
    """Delete the queue of one session that is not connected.

    Args:
        key: Key of the session.
        actor: User or program that asks for it.
        up_to: Id of the last entry to delete (`Queue.newest`); optional only if the twin is banned
            or was removed.

    Returns:
        Number of deleted messages.

    Raises:
        Denied, Away
        Invalid: The key is not a session key, or `up_to` is missing or not an entry's id.
        Conflict: The session is connected.
    """
    twin, _ = walking.parse(key)
    if up_to and not headers.is_entry(up_to):
        raise Invalid(fields={"up_to": "is not the id of an entry"})
    with audit.change(actor, "queue.purge", target=key) as change:
        if not up_to and in_good_standing(twin):
            raise Invalid(
                fields={
                    "up_to": f"twin {twin} is neither banned nor removed: name the last entry "
                    "that is to go"
                }
            )
        try:
            purged = purging.purge(client(), key, up_to)
        except purging.Connected:
            raise Conflict(
                f"session {key} is connected: kick it before you purge its queue"
            ) from None
        change.after = {"purged": purged, "up_to": up_to}
        change.happened = bool(purged)
    return purged


def purge_twin(twin: int, *, actor: Actor, seen: Sequence[Waiting] | None = None) -> int:
    """Delete the queues of a banned or removed twin, except those of connected sessions.

    Args:
        twin: Id of the twin.
        actor: User or program that asks for it.
        seen: Queues as the operator was shown them: messages that arrived since then stay. None:
            all messages that wait now.

    Returns:
        Number of deleted messages.

    Raises:
        Denied, Away
        Conflict: The twin is neither banned nor removed.
    """
    with audit.change(actor, "queue.purge", target=twin) as change:
        if in_good_standing(twin):
            raise Conflict(
                f"twin {twin} is neither banned nor removed: its queues are kept; purge them one "
                "by one"
            )
        queues = purging.waiting(client(), twin) if seen is None else seen
        purged = purging.purge_queues(client(), queues)
        change.after = {"purged": purged}
        change.happened = bool(purged)
    return purged


def move(source: str, target: str, *, actor: Actor) -> Moved:
    """Move the messages of one session to another of the same twin (see `relay.queues.moving`).

    The other session need not exist yet; if it is connected, it receives the messages at once.

    While a change is in a transaction with its audit entry, all other changes wait, so only the
    first page is moved in it: its entry says whether the move continues, and a second entry records
    the result of the rest.

    Raises:
        Denied, Away
        Invalid: A key is not a session key, or they are the same, or of two twins.
        Conflict: Nothing was moved: the session is connected, its queue is being forwarded to
            another relay, or the other queue is full.
    """
    from_twin, _ = walking.parse(source, "source")
    to_twin, sid = walking.parse(target, "target")
    if from_twin != to_twin:
        raise Invalid(fields={"target": f"must be a session of twin {from_twin}"})
    if source == target:
        raise Invalid(fields={"target": "is the same queue"})
    max_sid_bytes = settings.RMB.relay.max_sid_bytes
    if sid is not None and len(sid.encode()) > max_sid_bytes:
        raise Invalid(fields={"target": f"its session id is longer than {max_sid_bytes} bytes"})
    queue = settings.RMB.queue
    policy = QueuePolicy(queue.max_messages, queue.max_bytes, queue.retention_s)
    steps = moving.steps(client(), source, target, policy)
    with audit.change(actor, "queue.move", target=source) as change:
        moved, over = next(steps)
        if moved.stopped and not moved.moved:
            raise Conflict(f"nothing was moved: {_WHY[moved.stopped]}")
        change.after = {"to": target, "moved": moved.moved, "stopped": moved.stopped}
        if not over:
            change.after["goes_on"] = True
        change.happened = bool(moved.moved) or not over
    if over:
        return moved
    first = moved.moved
    *_, (moved, _over) = steps
    with audit.change(actor, "queue.move", target=source) as change:
        change.after = {"to": target, "moved": moved.moved - first, "stopped": moved.stopped}
    return moved


_WHY: Final = {
    "connected": "the session is connected",
    "guest": "the messages are on their way to another relay",
    "full": "the other queue is full",
    "time": "it takes too long",
}


def export(key: str, form: str = "jsonl", *, actor: Actor) -> Iterator[str]:
    """Return the headers of a whole queue as lines of text, in the order of `EXPORTED`.

    Args:
        key: Key of the session.
        form: `jsonl`, one JSON object per line, or `csv`, which begins with a line of names.
        actor: User or program that asks for it.

    Raises:
        Denied, Away
        Invalid: The key is not a session key, or there is no such form.
        redis.exceptions.RedisError: Redis became unavailable while the queue was read.
    """
    walking.parse(key)
    if form not in FORMS:
        raise Invalid(fields={"form": f"must be one of {', '.join(FORMS)}"})
    with audit.change(actor, "queue.export", target=key) as change:
        found = walking.one(client(), key)
        # Messages that arrive during the export are not included.
        up_to = found.newest if found else "0-1"
        change.after = {"messages": found.messages if found else 0, "form": form}
    return _lines(key, form, up_to)


def _lines(key: str, form: str, up_to: str) -> Iterator[str]:
    if form == "csv":
        yield csv_text.line(EXPORTED)
    for page in headers.read_all(client(), key, up_to=up_to):
        for header in page:
            values: list[Any] = [getattr(header, name) for name in EXPORTED]
            if form == "csv":
                yield csv_text.line(values)
            else:
                yield json.dumps(dict(zip(EXPORTED, values, strict=True))) + "\n"


def _away(error: RedisError) -> Away:
    return Away(f"Redis does not answer: {error}")
