"""Ending sessions, and changes of their rows that do not come from the worker that held them.

A kick is an order in Redis that identifies the connection by its epoch. The worker that holds it
ends it within a second; a connection that is made after the order has a higher epoch and stays.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Max, QuerySet, Value
from django.db.models.functions import Greatest
from django.utils import timezone

from proto.identity.bounds import MAX_TWIN
from proto.rmb.reasons import SessionReason
from proto.sbd.frames import key_of_path
from relay.access.actor import Actor
from relay.access.errors import Away, Conflict, Invalid, NotFound
from relay.audit import services as audit
from relay.ops import control
from relay.ops.redis_client import client
from relay.queues import keys
from relay.sessions import directory
from relay.sessions.models import SBD, Session, unix_us
from relay.sessions.scripts import entry_epoch

# Maximum number of rows one call removes: short transactions do not block other writers.
MAX_PRUNED = 5000

SCAN_COUNT = 1000


def kick(key: str, *, actor: Actor, epoch: int | None = None, reason: str = "") -> int:
    """End one session.

    Args:
        key: key of the session, `<twin>`, `<twin>:<sid>` or `sbd:<key>`.
        actor: user or program that requests it.
        epoch: epoch of the connection to end; the present one if None.
        reason: reason for the log of the worker and the audit log.

    Returns:
        The epoch of the connection that ends.

    Raises:
        Denied, Away
        NotFound: it is not connected.
        Conflict: another connection has taken over.
    """
    with audit.change(actor, "session.kick", target=key) as change:
        name = directory.HASHES[directory.protocol_of(key)]
        entry: Any = client().hget(name, directory.field(key))
        if entry is None:
            raise NotFound(f"session {key} is not connected")
        present, worker, address = directory.read(key, entry)
        if not present:
            raise Away(f"the entry of session {key} in Redis is malformed; its worker repairs it")
        if epoch is not None and epoch != present:
            raise Conflict(f"another connection has taken session {key} over")
        address = address or _address(key, present)
        change.before = {"epoch": present, "worker": worker, "address": address}
        change.after = {"reason": reason}
        control.kick(key, present, reason or f"kicked by {actor.name}")
    return present


def _address(key: str, epoch: int) -> str:
    """Return the address of an SBD client; its row exists about a second after it has connected."""
    rows = Session.objects.filter(twin=None, protocol=SBD, epoch=epoch)
    found = rows.filter(peer=key.partition(":")[2]).values_list("remote", flat=True)
    return found.first() or ""


def kick_twin(twin: int, *, actor: Actor, reason: str = "") -> int:
    """End all sessions of a twin. Those that connect from now on stay.

    Returns:
        Number of sessions.

    Raises:
        Denied, Away
        Invalid: the id is out of range.
        NotFound: it is not connected.
    """
    if not 0 < twin <= MAX_TWIN:
        raise Invalid(fields={"twin": f"must be between 1 and {MAX_TWIN}"})
    with audit.change(actor, "session.kick", target=twin) as change:
        seconds, micros = client().time()
        # An epoch is the time of Redis' clock, unless that was set back.
        epochs = _epochs(twin)
        if not epochs:
            raise NotFound(f"twin {twin} is not connected")
        change.before = {"sessions": len(epochs)}
        change.after = {"reason": reason}
        last = max(seconds * 1_000_000 + micros, *epochs)
        control.kick_twin(twin, last, reason or f"kicked by {actor.name}")
    return len(epochs)


def _epochs(twin: int) -> list[int]:
    """Return the epochs of the sessions of a twin."""
    found: dict[bytes, bytes] = {}
    own: Any = client().hget(keys.SESSIONS, str(twin))
    if own is not None:
        found[b""] = own
    entries: Any = client().hscan_iter(keys.SESSIONS, match=f"{twin}:*", count=SCAN_COUNT)
    found.update(entries)  # a scan may return a key twice
    return [entry_epoch(entry) for entry in found.values()]


def workers_with_open_rows() -> set[str]:
    """Return the boot ids of the workers that hold sessions, as far as the database knows."""
    return set(Session.objects.filter(closed_at=None).values_list("worker", flat=True).distinct())


def mark_worker_lost(boot_id: str, seen: datetime | None = None) -> int:
    """Close the open rows of a worker that died, and record their ends if events are recorded.

    Args:
        boot_id: boot id of the worker.
        seen: its last sign of life; None: the newest time in its rows.

    Returns:
        Number of sessions lost.

    Raises:
        OSError: the ends cannot be recorded; the rows stay open.
    """
    own = Session.objects.filter(worker=boot_id)
    known = own.aggregate(opened=Max("opened_at"), closed=Max("closed_at"))
    times = [at for at in (seen or known["opened"], known["closed"]) if at is not None]
    if not times:
        return 0
    ended_at = Greatest("opened_at", Value(max(times)))
    rows = own.filter(closed_at=None)
    if settings.RMB.analytics.record and rows.exists():
        _record_ends(rows, ended_at)
    return rows.update(closed_at=ended_at, close_reason=SessionReason.WORKER_LOST)


def _record_ends(rows: QuerySet[Session], ended_at: Greatest) -> None:
    from relay.analytics import lost_sessions

    ends = rows.annotate(ended_at=ended_at).values_list(
        "worker", "twin", "peer", "sid_present", "sid", "epoch", "opened_at", "ended_at"
    )
    lost_sessions.record(
        settings.RMB,
        (
            lost_sessions.Lost(
                worker,
                key_of_path(peer) if twin is None else (twin, sid if present else None),
                epoch,
                unix_us(opened),
                unix_us(ended),
            )
            for worker, twin, peer, present, sid, epoch, opened, ended in ends.iterator()
        ),
    )


def prune(keep_days: int, now: datetime | None = None) -> int:
    """Remove rows of sessions that ended long ago, the oldest first.

    Returns:
        Number of rows removed; `MAX_PRUNED` means that there may be more.
    """
    before = (now or timezone.now()) - timedelta(days=keep_days)
    old = Session.objects.filter(closed_at__lt=before).order_by("closed_at")
    removed, _ = Session.objects.filter(
        pk__in=list(old.values_list("pk", flat=True)[:MAX_PRUNED])
    ).delete()
    return removed
