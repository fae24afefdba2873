"""Minutes and hours in the database: made of the finer level when they are over, and pruned.

Any operator site may do it, and several at once: a minute is made of the same seconds whoever does
it, and of two rows for it the database takes the first. After a restart, or while the database was
away, what Redis still has of the last hour is made up for; a minute without a second stays a gap.
There are at most 10,200 minutes and 8,860 hours, of up to 400 bytes each: some megabytes.
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
"""How long minutes and hours are kept: a little longer than they are shown, so that a comparison
with a week ago has something to compare with."""
GRACE_S: Final = 3
"""After the end of a minute its last second is there."""

Points = list[tuple[int, Values]]
ReadSeconds = Callable[[int, int], Points]


def roll_up_minutes(read: ReadSeconds, first: int, now: float) -> int:
    """Stores the minutes that are over and not stored.

    Args:
        read: the seconds from one to another, both included.
        first: the first minute looked at is the one that holds this unix second.
        now: unix seconds.

    Returns:
        The second up to which all is stored that ever will be: `first` of the next call.

    Raises:
        django.db.Error, or what `read` raises: nothing is lost, it is done next time.
    """
    return _roll_up(MINUTE_S, read, first, now)


def roll_up_hours(first: int, now: float) -> int:
    """Stores the hours that are over and not stored, from the minutes; as `roll_up_minutes`."""
    return _roll_up(HOUR_S, lambda low, high: stored(MINUTE_S, low, high), first, now)


def stored(
    resolution_s: int, first: int, last: int, wanted: Collection[str] | None = None
) -> Points:
    """The points from one second to another, both included, in their order.

    Args:
        resolution_s: `MINUTE_S` or `HOUR_S`.
        first, last: unix seconds.
        wanted: keys of series; all of them unless given.
    """
    rows = Point.objects.filter(resolution_s=resolution_s, at__gte=first, at__lte=last)
    return [
        (at, unpack(bytes(figures), wanted))
        for at, figures in rows.order_by("at").values_list("at", "figures")
    ]


def grouped(points: Iterable[tuple[int, Values]], step_s: int) -> Iterator[tuple[int, Values]]:
    """Points of a coarser level: one for each step that has any, in their order."""
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
    """Deletes what is older than it is kept; returns how many rows."""
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
    """First and last second of what is missing in one piece, a day of it at most."""
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
