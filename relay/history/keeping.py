"""Minutes and hours of the history in the database: rolled up from the finer level, and pruned.

Any operator site may do this, even several at once: all compute a minute from the same seconds,
and of two rows for the same minute the database keeps the first. After a restart or an outage of
the database, the minutes of the last hour are made from what Redis still has; a minute without any
second remains a gap. There are at most 10,200 minutes and 8,860 hours of up to 400 bytes each: some
megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from django.db import transaction

from relay.history.models import Point
from relay.history.packing import Values, pack, rolled_up, unpack

MINUTE_S: Final = 60
HOUR_S: Final = 3600
WEEK_S: Final = 7 * 86_400
YEAR_S: Final = 365 * 86_400

KEPT_S: Final = {MINUTE_S: WEEK_S + 2 * HOUR_S, HOUR_S: YEAR_S + 4 * 86_400}
"""Seconds for which minutes and hours are kept, by resolution. They are kept a little longer than
they are shown, so that a comparison with a week ago finds its values."""
GRACE_S: Final = 3
"""Seconds to wait after the end of a minute, until its last second is written."""

Points = list[tuple[int, Values]]
ReadSeconds = Callable[[int, int], Points]


def roll_up_minutes(read: ReadSeconds, first: int, now: float) -> int:
    """Store the minutes that are over and not stored yet.

    Args:
        read: function that returns the seconds from one to another, both included.
        first: unix second; the minute that contains it is the first to be checked.
        now: unix seconds.

    Returns:
        The unix second up to which rolling up is complete: `first` of the next call.

    Raises:
        django.db.Error, or what `read` raises: nothing is lost; the next call stores the minutes.
    """
    return _roll_up(MINUTE_S, read, first, now)


def roll_up_hours(first: int, now: float) -> int:
    """Store the hours that are over and not stored yet, from the minutes; see `roll_up_minutes`."""
    return _roll_up(HOUR_S, lambda low, high: stored(MINUTE_S, low, high), first, now)


def stored(
    resolution_s: int, first: int, last: int, wanted: Collection[str] | None = None
) -> Points:
    """Return the stored points from one second to another, both included, in ascending order.

    Args:
        resolution_s: `MINUTE_S` or `HOUR_S`.
        first, last: unix seconds.
        wanted: keys of series; None for all.
    """
    rows = Point.objects.filter(resolution_s=resolution_s, at__gte=first, at__lte=last)
    return [
        (at, unpack(bytes(figures), wanted))
        for at, figures in rows.order_by("at").values_list("at", "figures")
    ]


def grouped(points: Iterable[tuple[int, Values]], step_s: int) -> Iterator[tuple[int, Values]]:
    """Yield points of a coarser level: one for each step that has any, in ascending order."""
    at = 0
    inside: list[Values] = []
    for second, values in points:
        begin = second - second % step_s
        if inside and begin != at:
            yield at, rolled_up(inside)
            inside = []
        at = begin
        inside.append(values)
    if inside:
        yield at, rolled_up(inside)


def prune(now: float) -> int:
    """Delete points older than `KEPT_S`; return the number of rows."""
    deleted = 0
    for resolution_s, kept_s in KEPT_S.items():
        old = Point.objects.filter(resolution_s=resolution_s, at__lt=int(now) - kept_s)
        deleted += old.delete()[0]
    return deleted


def _roll_up(step_s: int, read: ReadSeconds, first: int, now: float) -> int:
    begin = first - first % step_s
    end = int(now - GRACE_S) // step_s * step_s
    if begin >= end:
        return begin
    there = set(
        Point.objects.filter(resolution_s=step_s, at__gte=begin, at__lt=end).values_list(
            "at", flat=True
        )
    )
    missing = [at for at in range(begin, end, step_s) if at not in there]
    made: Points = []
    for low, high in _stretches(missing, step_s):
        made += grouped(read(low, high), step_s)
    if made:
        with transaction.atomic():
            Point.objects.bulk_create(
                (Point(resolution_s=step_s, at=at, figures=pack(values)) for at, values in made),
                ignore_conflicts=True,
            )
    return end


def _stretches(missing: list[int], step_s: int) -> Iterator[tuple[int, int]]:
    """Yield first and last second of each stretch of missing points; a stretch is at most a day."""
    most = 86_400 // step_s * step_s
    begin = last = None
    for at in missing:
        if begin is None or last is None:
            begin = last = at
        elif at == last + step_s and at - begin < most:
            last = at
        else:
            yield begin, last + step_s - 1
            begin = last = at
    if begin is not None and last is not None:
        yield begin, last + step_s - 1
