"""Writing of the audit log. Every change by an actor is made inside a `change` block.

    with audit.change(actor, "session.kick", target="7:phone") as change:
        change.before = {"epoch": 5}
        ...                               # an exception rolls back both change and entry
        change.after = None

The entry is the last statement of the transaction that holds the change: there is no change without
an entry and no entry without a change. Changes in Redis are made inside the block, so that their
failure rolls the entry back.

Writers wait for each other: on PostgreSQL for a lock that belongs to the transaction, on SQLite for
the database's own write lock, which our transactions take when they begin. The lock is taken before
the change and not only before the entry, since otherwise two changes could deadlock, one waiting
for the other's rows and the other for the lock.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import QuerySet
from django.utils import timezone
from redis.exceptions import RedisError

from relay.access import matrix
from relay.access.actor import MAX_ADDRESS_CHARS, MAX_NAME_CHARS, Actor
from relay.access.errors import Away, Conflict, Invalid
from relay.audit import chain, listing
from relay.audit.chain import Head, Record
from relay.audit.models import MAX_ACTION_CHARS, MAX_TARGET_CHARS, AuditEntry

logger = logging.getLogger(__name__)

_acting: ContextVar[Actor | None] = ContextVar("acting", default=None)

LOCK: Final = 0x726D_6275
"""Key of PostgreSQL's advisory lock that guards the end of the audit log."""

_verifying: Final = threading.Lock()


@dataclass(slots=True)
class Change:
    """The contents of the entry that `change` writes when its block ends.

    Attributes:
        target: name of the changed object; may be set later if the block creates the object.
        before: JSON value before the change, without secrets and payloads; long ones are cut.
        after: JSON value after the change; as `before`.
        happened: False if there turned out to be nothing to do: no entry is written.
    """

    target: str
    before: Any = field(default=None)
    after: Any = field(default=None)
    happened: bool = True


@contextlib.contextmanager
def change(actor: Actor, action: str, *, target: object = "") -> Iterator[Change]:
    """Hold a change and its entry in one transaction.

    Args:
        actor: actor of the change.
        action: action of the permission matrix.
        target: changed object.

    Raises:
        Denied: the actor lacks the permission.
        Invalid: a model in the block refused its values.
        Away: Redis or the database did not answer; nothing was changed.
    """
    actor.require(matrix.permission_of(action))
    held = Change(str(target))
    with _outages(), transaction.atomic():
        _lock()
        outer = _acting.set(actor)
        try:
            yield held
        finally:
            _acting.reset(outer)
        if held.happened:
            _append(actor, action, held)


def acting() -> Actor | None:
    """Return the actor of the enclosing `change` block, if any; for records that result from it."""
    return _acting.get()


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Block all other changes, so that the caller can read something and then change it.

    Raises:
        Away: the database does not answer.
    """
    with _outages(), transaction.atomic():
        _lock()
        yield


def record(actor: Actor, action: str, *, target: object = "", after: Any = None) -> None:
    """Write an entry for an event that changes nothing, such as a sign-in. Needs no permission."""
    with _outages(), transaction.atomic():
        _lock()
        _append(actor, action, Change(str(target), after=after))


def export(entries: QuerySet[AuditEntry], form: str, *, actor: Actor) -> Iterator[str]:
    """Yield entries as lines of text; the export adds an entry of its own.

    Args:
        entries: entries in the order of the export.
        form: one of `relay.audit.listing.FORMS`.
        actor: actor that gets the export.

    Raises:
        Denied: the actor lacks the permission.
    """
    with change(actor, "audit.export") as held:
        held.after = {"entries": entries.count(), "form": form}
    return listing.export(entries.iterator(chunk_size=listing.CHUNK), form)


def head() -> Head:
    """Return the head of the log."""
    last = AuditEntry.objects.order_by("-number").values_list("number", "hash").first()
    return Head(*last) if last else chain.EMPTY


def verify(anchors: list[Head] | None = None) -> Head:
    """Verify the whole log.

    Args:
        anchors: heads that were stored elsewhere.

    Returns:
        The current head.

    Raises:
        relay.audit.chain.Broken: the log was changed.
    """
    with listing.streamed(AuditEntry.objects.order_by("number")) as rows:
        return verify_entries(rows, anchors)


def verify_entries(entries: Iterable[AuditEntry], anchors: list[Head] | None = None) -> Head:
    """Verify a whole log that is not in the database, the oldest entry first; see `verify`.

    Raises:
        relay.audit.chain.Broken: the log was changed, or hashed with keys that this site lacks.
    """
    return chain.verify(_keys(), ((_record(row), row.hash) for row in entries), anchors or ())


def verify_alone(anchors: list[Head] | None = None) -> Head:
    """Verify the whole log, unless a check is already running: a long log takes a while.

    Raises:
        Conflict: a check is already running.
        relay.audit.chain.Broken: the log was changed.
    """
    if not _verifying.acquire(blocking=False):
        raise Conflict("the log is being checked already: ask again later")
    try:
        return verify(anchors)
    finally:
        _verifying.release()


def _append(actor: Actor, action: str, held: Change) -> None:
    last = head()
    entry = AuditEntry(
        number=last.number + 1,
        at=timezone.now(),
        actor=_text(actor.name, MAX_NAME_CHARS),
        face=actor.face.value,
        address=_text(actor.address, MAX_ADDRESS_CHARS),
        action=_text(action, MAX_ACTION_CHARS),
        target=_text(held.target, MAX_TARGET_CHARS),
        before_json=chain.bounded(_plain(held.before)),
        after_json=chain.bounded(_plain(held.after)),
        previous=last.hash,
    )
    entry.hash = chain.hash_of(_keys()[0], _record(entry))
    entry.save(force_insert=True)
    transaction.on_commit(lambda: _tell(entry))


def _tell(entry: AuditEntry) -> None:
    """Log an entry. The line is an anchor too: logs can be stored out of the database's reach."""
    logger.info(
        "audit %d %s: %s by %s (%s %s) on %r",
        *(entry.number, entry.hash[:16], entry.action, entry.actor, entry.face),
        *(entry.address or "-", entry.target),
    )


def _record(entry: AuditEntry) -> Record:
    return Record(
        *(entry.number, entry.at, entry.actor, entry.face, entry.address, entry.action),
        *(entry.target, entry.before_json, entry.after_json, entry.previous),
    )


def _keys() -> list[bytes]:
    return [chain.key_of(str(key)) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]


def _lock() -> None:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])


@contextlib.contextmanager
def _outages() -> Iterator[None]:
    try:
        yield
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    except (OperationalError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error
    except ValidationError as error:
        raise Invalid.of_validation(error) from error


def _plain(value: Any) -> Any:
    """Return a value with dates and the like replaced by their JSON texts."""
    return json.loads(json.dumps(value, cls=DjangoJSONEncoder))


def _text(value: str, size: int) -> str:
    """Return a text that databases accept: short enough, without NUL and lone surrogates."""
    clean = value.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= size else f"{clean[: size - 1]}…"
