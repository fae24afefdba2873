"""Changes of session rows that do not come from the worker that held the session."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.utils import timezone

from proto.rmb.reasons import SessionReason
from relay.sessions.models import Session

# Rows one call removes: a short transaction, so that nobody waits for a big clean-up.
MAX_PRUNED = 5000


def workers_with_open_rows() -> set[str]:
    """Boot ids of the workers that hold sessions, as far as the database knows."""
    return set(Session.objects.filter(closed_at=None).values_list("worker", flat=True).distinct())


def mark_worker_lost(boot_ids: Iterable[str], now: datetime | None = None) -> int:
    """Close the open rows of workers that died.

    Returns:
        How many sessions were lost.
    """
    rows = Session.objects.filter(closed_at=None, worker__in=list(boot_ids))
    return rows.update(closed_at=now or timezone.now(), close_reason=SessionReason.WORKER_LOST)


def prune(keep_days: int, now: datetime | None = None) -> int:
    """Remove rows of sessions that ended long ago, the oldest first.

    Returns:
        How many were removed; `MAX_PRUNED` means that there may be more.
    """
    before = (now or timezone.now()) - timedelta(days=keep_days)
    old = Session.objects.filter(closed_at__lt=before).order_by("closed_at")
    removed, _ = Session.objects.filter(
        pk__in=list(old.values_list("pk", flat=True)[:MAX_PRUNED])
    ).delete()
    return removed
