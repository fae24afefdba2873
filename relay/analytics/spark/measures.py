"""Functions that the jobs share: selection of rows, time in whole numbers, percentiles.

Only whole numbers give exactly the same rows in two engines: hours and days are computed from the
microseconds since 1970 by division, a percentile is one of the values (never between two), and
shares are integers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from relay.analytics.spark import schema
from relay.analytics.spark.window import Window

SECOND_US: Final = 1_000_000
HOUR_US: Final = 3600 * SECOND_US
DAY_US: Final = 24 * HOUR_US


def during(
    events: DataFrame, start_us: int, end_us: int, *kinds: str, of: str | None = schema.RMB
) -> DataFrame:
    """Return the rows of some kinds, or of all, from `start_us` on and before `end_us`.

    Rows without a time or a kind, which no recorder writes, are skipped. Folders of other days are
    not opened.

    Args:
        events: rows of all protocols.
        start_us, end_us: microseconds since 1970.
        kinds: kinds of the rows; none for all.
        of: protocol of the rows; None for all. SBD has no twins, no uids and no deliveries, so
            tables about these must not count its rows.
    """
    time, kind = F.col("event_time"), F.col("kind")
    if of == schema.RMB:
        events = events.where(protocol() == of)
    elif of is not None:
        events = events.where(F.col("protocol") == of)  # skips files without such rows
    first, last = (datetime.fromtimestamp(us // SECOND_US, UTC) for us in (start_us, end_us - 1))
    return events.where(
        F.col("date").between(f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}")
        & (kind.isin(*kinds) if kinds else kind.isNotNull())
        & (time >= F.timestamp_micros(F.lit(start_us)))
        & (time < F.timestamp_micros(F.lit(end_us)))
    )


def time_us() -> Column:
    """Return `event_time` in microseconds since 1970."""
    return F.unix_micros("event_time")


def hour_number() -> Column:
    """Return the hours since 1970 of `event_time`."""
    return F.expr(f"unix_micros(event_time) div {HOUR_US}")


def day_number() -> Column:
    """Return the days since 1970 of `event_time`."""
    return F.expr(f"unix_micros(event_time) div {DAY_US}")


def hour_start(hour: str) -> Column:
    """Return the start of an hour, given in hours since 1970, as a timestamp."""
    return F.timestamp_seconds(F.col(hour) * 3600)


def day_of_hour(hour: str) -> Column:
    """Return the day of an hour, given in hours since 1970, as `YYYY-MM-DD`."""
    return F.date_from_unix_date(F.expr(f"cast({hour} div 24 as int)")).cast("string")


def period_of_hour(hour: str, window: Window) -> Column:
    """Return the same as `day_of_hour` for hours of a window, faster for many rows."""
    names = F.array(*(F.lit(day.isoformat()) for day in window.days()))
    return F.get(names, F.expr(f"cast({hour} div 24 - {window.start_us // DAY_US} as int)"))


def begin(us: Column, unit_us: int) -> Column:
    """Return the start of the hour or day of a time, in microseconds."""
    return us - F.pmod(us, F.lit(unit_us))


def day_of(us: Column) -> Column:
    """Return the day of a time in microseconds, as `YYYY-MM-DD`."""
    return F.to_date(F.timestamp_micros(us)).cast("string")


def day_name(day: str) -> Column:
    """Return a day, given in days since 1970, as `YYYY-MM-DD`."""
    return F.date_from_unix_date(F.col(day).cast("int")).cast("string")


def protocol() -> Column:
    """Return the protocol of a row; files of the first version do not have it."""
    return F.coalesce(F.col("protocol"), F.lit(schema.RMB))


def session() -> Column:
    """Return the name of a row's session, "" if it has none; for SBD, the client's key."""
    return F.coalesce(F.col("src_key"), F.col("src_session"), F.lit(""))


def twin(column: str) -> Column:
    """Return a twin; 0, which no twin has, if the row names none."""
    return F.coalesce(F.col(column), F.lit(0).cast("long"))


def name(column: str) -> Column:
    """Return a relay or a partner relay; "" if the row names none."""
    return F.coalesce(F.col(column), F.lit(""))


def count_of(condition: Column) -> Column:
    """Return the number of rows that meet a condition; null counts as not met."""
    return F.count(F.when(condition, True))


def sum_of(value: str, condition: Column | None = None) -> Column:
    """Return the sum of a column over the rows that meet a condition; 0 without rows."""
    column = F.col(value) if condition is None else F.when(condition, F.col(value))
    return F.coalesce(F.sum(column), F.lit(0).cast("long"))


def recorded_for_lost() -> Column:
    """Return whether a closing row was recorded for a worker that was found dead.

    The rows of the worker itself take precedence, because it may only have been presumed dead.
    """
    return F.col("reason").eqNullSafe(schema.WORKER_LOST)


def closed_us() -> Column:
    """Return the time at which a session was closed, from all its rows; null if it was not."""
    closing, lost = F.col("kind") == schema.SESSION_CLOSE, recorded_for_lost()
    own = F.min(F.when(closing & ~lost, time_us()))
    return F.coalesce(own, F.min(F.when(closing, time_us())))


PERCENTILES: Final = (50, 95, 99)


def ranked(values: str, percent: int) -> Column:
    """Return the value at the nearest rank: of n ascending values, number ceil(percent * n / 100).

    Args:
        values: column with the ascending values, as an array without nulls.
        percent: 1 to 100.

    Returns:
        One of the values, never one between two; null without values.
    """
    return F.expr(f"get({values}, cast((size({values}) * {percent} + 99) div 100 as int) - 1)")


def ascending(value: str, condition: Column | None = None) -> Column:
    """Return the non-null values of a column in ascending order, for `ranked`."""
    column = F.col(value) if condition is None else F.when(condition, F.col(value))
    return F.sort_array(F.collect_list(column))
