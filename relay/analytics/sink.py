"""Database side of the stream: every event counts once, even after a crash.

Spark calls `apply` with the number of a batch and its sums. One transaction adds the sums to the
minutes and stores the number. If the process dies before the commit, nothing of the batch is stored
and Spark sends it again. If it dies after the commit, but before Spark has recorded the batch as
done, Spark sends it again too, and its number shows that it is stored. Numbers belong to a
checkpoint, whose name is in the same row: with another checkpoint, the counting starts again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction

from relay.analytics.errors import AnalyticsError
from relay.analytics.models import LiveMinute, StreamState

KEEP: Final = timedelta(days=3)
"""How long minutes are kept; by then, the jobs have computed these days."""

_SUMS: Final = ("n", "size_bytes", "latency_us", "late")
_KEYS: Final = ("minute", "relay", "kind", "reason", "remote")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TakenOver(AnalyticsError):
    """Another stream has started since."""


def state() -> StreamState | None:
    """Return the state of the stream; None if there never was one."""
    return StreamState.objects.first()


def begin(counts_from: datetime, now: datetime, *, keep: bool) -> StreamState:
    """Begin a checkpoint, which counts all events from a full hour on.

    Args:
        counts_from: the full hour.
        now: current time, for the name of the checkpoint.
        keep: whether the minutes before that hour are complete and stay.
    """
    with transaction.atomic():
        before = StreamState.objects.select_for_update().first()
        counted = LiveMinute.objects.all()
        since = counts_from
        if keep and before is not None:
            counted = counted.filter(minute__gte=counts_from)
            since = min(before.since, counts_from)
        counted.delete()
        if before is not None:
            before.delete()
        return StreamState.objects.create(
            checkpoint=f"live-{now:%Y%m%d%H%M%S}-{uuid.uuid4().hex[:8]}",
            since=since,
            counts_from=counts_from,
            newest=before.newest if keep and before is not None else None,
            began_at=now,
            updated_at=now,
        )


def apply(checkpoint: str, batch: int, sums: Iterable[Mapping[str, Any]], now: datetime) -> bool:
    """Add the sums of a batch; return False if they were added before.

    Args:
        checkpoint: checkpoint of the calling stream.
        batch: number of the batch.
        sums: rows of `relay.analytics.spark.stream.sums`, one for each key.
        now: current time.

    Raises:
        TakenOver: the checkpoint is not the current one.
    """
    with transaction.atomic():
        current = _current(checkpoint)
        if batch <= current.batch:
            return False
        found = list(sums)
        _add(found)
        current.batch = batch
        current.events += sum(each["n"] for each in found)
        newest = max((_moment(each["newest_us"]) for each in found), default=current.newest)
        if newest is not None:
            current.newest = max(newest, current.newest or newest)
        current.updated_at = now
        current.save()
    return True


def beat(checkpoint: str, now: datetime) -> None:
    """Record that the stream runs although no event came, and delete old minutes.

    Raises:
        TakenOver: the checkpoint is not the current one.
    """
    with transaction.atomic():
        current = _current(checkpoint)
        # A clock that is ahead must not delete all of today.
        oldest = min(current.newest or now, now).replace(second=0, microsecond=0) - KEEP
        if oldest > current.since:
            LiveMinute.objects.filter(minute__lt=oldest).delete()
            current.since = oldest
        current.updated_at = now
        current.save()


def _current(checkpoint: str) -> StreamState:
    current = StreamState.objects.select_for_update().first()
    if current is None or current.checkpoint != checkpoint:
        raise TakenOver("another stream has begun meanwhile; this one ends")
    return current


def _add(found: list[Mapping[str, Any]]) -> None:
    """Insert the sums, or add them to existing rows; the SQL suits SQLite and PostgreSQL."""
    quote = connection.ops.quote_name
    table = quote(LiveMinute._meta.db_table)
    columns = ", ".join(quote(name) for name in (*_KEYS, *_SUMS))
    keys = ", ".join(quote(name) for name in _KEYS)
    places = ", ".join(["%s"] * len((*_KEYS, *_SUMS)))
    added = ", ".join(
        f"{quote(name)} = {table}.{quote(name)} + excluded.{quote(name)}" for name in _SUMS
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            f"INSERT INTO {table} ({columns}) VALUES ({places}) "
            f"ON CONFLICT ({keys}) DO UPDATE SET {added}",
            [
                (
                    connection.ops.adapt_datetimefield_value(_moment(each["minute_us"])),
                    *(each[name] for name in _KEYS[1:]),
                    *(each[name] for name in _SUMS),
                )
                for each in found
            ],
        )


def _moment(time_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=time_us)
