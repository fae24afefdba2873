"""Writing the audit log. Every change an actor makes happens inside of `change`.

    with audit.change(actor, "session.kick", target="7:phone") as change:
        change.before = {"epoch": 5}
        ...                               # raise, and neither the change nor the entry is there
        change.after = None

The entry is the last statement of the transaction that holds the change: there is no change without
an entry and no entry without a change. What is done in Redis is done inside, so that its failure
takes the entry back.

Writers queue up: on PostgreSQL behind a lock that belongs to the transaction, on SQLite behind the
database's own write lock, which our transactions take when they begin. The lock is taken before the
change and not before the entry: two changes that wait for each other's rows and for it would never
end.
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
"""Of PostgreSQL's advisory locks: the end of the audit log."""

_verifying: Final = threading.Lock()


@dataclass(slots=True)
class Change:
    """What `change` writes when its block ends.

    Attributes:
        target: what is changed; may be set later, where its name is made in the block.
        before: JSON values, no secrets and no payloads; long ones are cut.
        after: as before.
        happened: False where it turned out that there was nothing to do: no entry is written.
    """

    target: str
    before: Any = field(default=None)
    after: Any = field(default=None)
    happened: bool = True


@contextlib.contextmanager
def change(actor: Actor, action: str, *, target: object = "") -> Iterator[Change]:
    """Hold a change and its entry in one transaction.

    Args:
        actor: who wants it.
        action: of the matrix.
        target: what is changed.

    Raises:
        Denied: the actor may not.
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
    """Whose change this is within: for what is written down because of it."""
    return _acting.get()


@contextlib.contextmanager
def exclusive() -> Iterator[None]:
    """Keep all other changes out, to look at something before it is changed inside.

    Raises:
        Away: the database does not answer.
    """
    with _outages(), transaction.atomic():
        _lock()
        yield


def record(actor: Actor, action: str, *, target: object = "", after: Any = None) -> None:
    """Write down what is no change of anything, such as a sign-in. Needs no permission."""
    with _outages(), transaction.atomic():
        _lock()
        _append(actor, action, Change(str(target), after=after))


def export(entries: QuerySet[AuditEntry], form: str, *, actor: Actor) -> Iterator[str]:
    """Entries as text, line by line; that they were exported is an entry as well.

    Args:
        entries: in the order they are to have.
        form: of `relay.audit.listing.FORMS`.
        actor: who gets them.

    Raises:
        Denied: the actor may not.
    """
    with change(actor, "audit.export") as held:
        held.after = {"entries": entries.count(), "form": form}
    return listing.export(entries.iterator(chunk_size=listing.CHUNK), form)


def head() -> Head:
    """The last entry."""
    last = AuditEntry.objects.order_by("-number").values_list("number", "hash").first()
    return Head(*last) if last else chain.EMPTY


def verify(anchors: list[Head] | None = None) -> Head:
    """Check the whole log.

    Args:
        anchors: heads that were kept elsewhere.

    Returns:
        The head it has now.

    Raises:
        relay.audit.chain.Broken: it was changed.
    """
    with listing.streamed(AuditEntry.objects.order_by("number")) as rows:
        return verify_entries(rows, anchors)


def verify_entries(entries: Iterable[AuditEntry], anchors: list[Head] | None = None) -> Head:
    """As `verify`, of a whole log that is elsewhere, the oldest entry first.

    Raises:
        relay.audit.chain.Broken: it was changed, or signed with other keys than this site has.
    """
    return chain.verify(_keys(), ((_record(row), row.hash) for row in entries), anchors or ())


def verify_alone(anchors: list[Head] | None = None) -> Head:
    """Check the whole log, unless somebody has it checked already: a long one takes a while.

    Raises:
        Conflict: it is being checked.
        relay.audit.chain.Broken: it was changed.
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
    """A line of the log is an anchor as well: it may be kept where no database reaches."""
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
    """Dates and the like as the texts JSON has for them."""
    return json.loads(json.dumps(value, cls=DjangoJSONEncoder))


def _text(value: str, size: int) -> str:
    """A text a database takes: short enough, and without what PostgreSQL or UTF-8 refuses."""
    clean = value.replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= size else f"{clean[: size - 1]}…"
