"""Reading of the history, for the console's pages and for REST.

A frame has at most `MAX_POINTS` points, whatever the span: points of a finer level are combined by
each series' roll-up. A time without a value remains a gap. The newest minutes and hours, which are
not stored yet, are rolled up from the finer level.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeVar, get_args

from django.db import DatabaseError, InterfaceError
from redis.exceptions import RedisError

from relay.access.errors import Away, Invalid
from relay.history import keeping, seconds
from relay.history.keeping import HOUR_S, MINUTE_S, Points
from relay.history.packing import Values, rolled_up
from relay.history.series import BY_KEY, SERIES
from relay.ops.redis_client import client

MAX_POINTS: Final = 1500
SPARKLINE_POINTS: Final = 60
FRESH_S: Final = 5
"""Maximum age of the last second, in seconds, for it to count as the present."""

Span = Literal["1h", "24h", "7d", "1y"]
SPANS: Final[tuple[str, ...]] = get_args(Span)

Found = TypeVar("Found")


class Scale(NamedTuple):
    """How a span is shown, in seconds: its length, the step between points, and the level read."""

    length_s: int
    step_s: int
    level_s: int


SCALES: Final = {
    "1h": Scale(HOUR_S, 3, 1),
    "24h": Scale(86_400, MINUTE_S, MINUTE_S),
    "7d": Scale(keeping.WEEK_S, 10 * MINUTE_S, MINUTE_S),
    "1y": Scale(keeping.YEAR_S, 6 * HOUR_S, HOUR_S),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """Some series over a span.

    Attributes:
        step_s: seconds between two points; a point covers the step that begins at its time.
        times: unix seconds, ascending, without a gap.
        values: values by key of the series, one for each time; None if unknown.
    """

    span: str
    step_s: int
    times: list[int]
    values: dict[str, list[float | None]]


@dataclass(frozen=True, slots=True)
class Latest:
    """The last second.

    Attributes:
        at: unix second; 0 if no second was ever written.
        values: values of every series; None if unknown, or if the last second is too old.
    """

    at: int
    values: dict[str, float | None]


class Compared(NamedTuple):
    """One series over the last minute, and over the same minute an hour and a week ago."""

    now: float | None
    hour_ago: float | None
    week_ago: float | None


def read(keys: Iterable[str], span: str, now: float | None = None) -> Frame:
    """Return some series over a span that ends now.

    Args:
        keys: keys of the series.
        span: one of `SPANS`.
        now: unix seconds; None for the current time.

    Raises:
        Invalid: a series or the span is unknown.
        Away: a store does not answer.
    """
    wanted = _known(keys)
    scale = SCALES.get(span)
    if scale is None:
        raise Invalid(fields={"span": f"must be one of {', '.join(SPANS)}"})
    moment = int(time.time() if now is None else now)
    first = (moment - scale.length_s) // scale.step_s * scale.step_s + scale.step_s
    return _frame(span, wanted, first, moment, scale)


def latest(now: float | None = None) -> Latest:
    """Return the values of the last second.

    Raises:
        Away: Redis does not answer.
    """
    moment = int(time.time() if now is None else now)
    newest = _from_redis(lambda: seconds.newest(client()))
    values: Values = {}
    if newest is not None and abs(moment - newest) <= FRESH_S:
        found = _from_redis(lambda: seconds.read(client(), newest, newest))
        values = found[-1][1] if found else {}
    return Latest(newest or 0, {each.key: values.get(each.key) for each in SERIES})


def compare(keys: Iterable[str], now: float | None = None) -> dict[str, Compared]:
    """Return some series now, an hour ago and a week ago, each over a minute.

    Raises:
        Invalid: a series is unknown.
        Away: a store does not answer.
    """
    wanted = _known(keys)
    moment = int(time.time() if now is None else now)
    present = rolled_up(
        values for _, values in _from_redis(lambda: seconds.read(client(), moment - 60, moment))
    )
    hour_ago, week_ago = (_minute(moment - back) for back in (HOUR_S, keeping.WEEK_S))
    return {key: Compared(present.get(key), hour_ago.get(key), week_ago.get(key)) for key in wanted}


def sparklines(
    keys: Iterable[str], points: int = SPARKLINE_POINTS, now: float | None = None
) -> dict[str, list[float | None]]:
    """Return some series over the last minutes, one point for each, the oldest first.

    Raises:
        Invalid: a series is unknown, or the number of points is out of range.
        Away: a store does not answer.
    """
    wanted = _known(keys)
    if not 1 <= points <= MAX_POINTS:
        raise Invalid(fields={"points": f"must be from 1 to {MAX_POINTS}"})
    moment = int(time.time() if now is None else now)
    length_s = points * MINUTE_S
    first = (moment - length_s) // MINUTE_S * MINUTE_S + MINUTE_S
    return _frame("", wanted, first, moment, Scale(length_s, MINUTE_S, MINUTE_S)).values


def _frame(span: str, wanted: Sequence[str], first: int, last: int, scale: Scale) -> Frame:
    found = _level(scale.level_s, first, last, frozenset(wanted))
    points = dict(keeping.grouped(found, scale.step_s))
    times = list(range(first, last + 1, scale.step_s))
    values: dict[str, list[float | None]] = {key: [] for key in wanted}
    nothing: Values = {}
    for at in times:
        point = points.get(at, nothing)
        for key in wanted:
            values[key].append(point.get(key))
    return Frame(span, scale.step_s, times, values)


def _level(level_s: int, first: int, last: int, wanted: Collection[str]) -> Points:
    """Return the points of a level; the newest, not stored yet, are made from the finer level."""
    if level_s == 1:
        return _from_redis(lambda: list(seconds.read(client(), first, last, wanted)))
    points = _from_database(lambda: keeping.stored(level_s, first, last, wanted))
    begin = max(points[-1][0] + level_s if points else first, last - 2 * HOUR_S, first)
    begin -= begin % level_s
    try:
        finer = _level(MINUTE_S if level_s == HOUR_S else 1, begin, last, wanted)
    except Away:
        return points  # Redis is unavailable: show at least what is stored
    return [*points, *keeping.grouped(finer, level_s)]


def _minute(at: int) -> Values:
    """Return the values of one minute, stored or not yet."""
    first = at // MINUTE_S * MINUTE_S
    found = _from_database(lambda: keeping.stored(MINUTE_S, first, first))
    if found:
        return found[0][1]
    return rolled_up(
        values
        for _, values in _from_redis(lambda: seconds.read(client(), first, first + MINUTE_S - 1))
    )


def _known(keys: Iterable[str]) -> list[str]:
    wanted = list(dict.fromkeys(keys))
    for key in wanted:
        if key not in BY_KEY:
            raise Invalid(fields={"series": f"there is no series {key[:64]}"})
    return wanted


def _from_redis(ask: Callable[[], Found]) -> Found:
    try:
        return ask()
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error


def _from_database(ask: Callable[[], Found]) -> Found:
    try:
        return ask()
    except (DatabaseError, InterfaceError) as error:
        raise Away(f"the database does not answer: {error}") from error
