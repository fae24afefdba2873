"""What each twin used in a month, for the bill.

Each twin that sent a message or had a session in the month has a row. Messages count for their
sender; each row counts in the month of its own time.

    period           YYYY-MM (UTC)
    twin             sender, or twin of the session; 0 for rows that name none
    accepted         messages from it that relays accepted
    accepted_bytes   bytes of their envelopes
    delivered        messages from it that relays wrote to their receivers
    delivered_bytes  bytes of their envelopes
    dropped          messages from it that were dropped, for any reason
    session_seconds  seconds its sessions were open within the month: microseconds of all its
                     sessions together / 1000000, rounded down

A session is all rows with one `uid`. It begins with its `session_open` row. If the month and the 31
days before it have no such row, it begins at the time of its `session_close` row minus the duration
in that row. It ends with its `session_close` row. If a row is recorded twice, the earlier one
counts; a `session_close` with the reason `worker_lost` counts only if there is no other.

If the month has no `session_close` row of a session, the session counts up to the newest event of
its relay in the month, but not beyond the next `session_open` row with the same relay, twin and
name: a relay has one session of a name at a time, so the earlier one ended and its close was not
recorded. A session counts if it

- was closed in the month, or
- was opened in the month or in the 31 days before it, and did not end before the month.

So a session that is open for a whole month does not count in it if it began more than 31 days
before the month. A session without a recorded close, after which its twin opened none with the same
name, counts in the month of its opening and in months that start within 31 days after it. A session
that ends before it begins (clocks that differ) has the length 0. Session rows without a uid do not
count.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window, next_month

TABLE: Final = "usage"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("twin", LongType()),
        StructField("accepted", LongType()),
        StructField("accepted_bytes", LongType()),
        StructField("delivered", LongType()),
        StructField("delivered_bytes", LongType()),
        StructField("dropped", LongType()),
        StructField("session_seconds", LongType()),
    ]
)

_OPENED_BEFORE_US: Final = 31 * measures.DAY_US


class Month(NamedTuple):
    """A month, with its start, and the start of the next one."""

    name: str
    start_us: int
    end_us: int


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table for whole months, for each month that the window touches."""
    months = _months(window)
    return (
        _messages(events, months)
        .unionByName(_sessions(events, months), allowMissingColumns=True)
        .groupBy("period", "twin")
        .agg(
            *(measures.sum_of(column).alias(column) for column in SCHEMA.names[2:7]),
            F.expr("coalesce(sum(open_us), 0L) div 1000000").alias("session_seconds"),
        )
    )


def _messages(events: DataFrame, months: list[Month]) -> DataFrame:
    """Return messages and bytes of each twin in each month."""
    kinds = (schema.ACCEPTED, schema.DELIVERED, schema.DROPPED)
    accepted, delivered, dropped = (F.col("kind") == kind for kind in kinds)
    return (
        measures.during(events, months[0].start_us, months[-1].end_us, *kinds)
        .groupBy(_month(months).alias("period"), measures.twin("src_twin").alias("twin"))
        .agg(
            measures.count_of(accepted).alias("accepted"),
            measures.sum_of("size_bytes", accepted).alias("accepted_bytes"),
            measures.count_of(delivered).alias("delivered"),
            measures.sum_of("size_bytes", delivered).alias("delivered_bytes"),
            measures.count_of(dropped).alias("dropped"),
        )
    )


def _sessions(events: DataFrame, months: list[Month]) -> DataFrame:
    """Return the microseconds each twin was connected in each month: period, twin, open_us."""
    start_us, end_us = months[0].start_us - _OPENED_BEFORE_US, months[-1].end_us
    kinds = (schema.SESSION_OPEN, schema.SESSION_CLOSE)
    opened, closed = (F.col("kind") == kind for kind in kinds)
    by_name = Over.partitionBy("relay", "twin", "session").orderBy("opened", "uid")
    sessions = (
        measures.during(events, start_us, end_us, *kinds)
        .where(F.col("uid").isNotNull())
        .groupBy("uid")
        .agg(
            F.min(measures.name("relay")).alias("relay"),
            F.min(measures.twin("src_twin")).alias("twin"),
            F.min(measures.session()).alias("session"),
            F.min(F.when(opened, measures.time_us())).alias("opened"),
            measures.closed_us().alias("closed"),
            F.min(F.when(closed, measures.time_us() - F.col("latency_us"))).alias("began"),
        )
        .withColumn("next", F.lead("opened").over(by_name))
    )
    # For rows from a list, Spark would start a Python worker.
    spans = events.sparkSession.range(0, 1, 1, 1).select(
        F.inline(F.array(*(_literal(month) for month in months)))
    )
    closed_within = F.col("closed").between(F.col("first"), F.col("after") - 1)
    open_at_end = (
        F.col("opened").between(F.col("first") - _OPENED_BEFORE_US, F.col("after") - 1)
        & F.coalesce(F.col("closed") >= F.col("after"), F.lit(True))
        & F.coalesce(F.col("next") >= F.col("first"), F.lit(True))
    )
    opened_within = F.when(F.col("opened") >= F.col("first") - _OPENED_BEFORE_US, F.col("opened"))
    begin = F.greatest(F.coalesce(opened_within, "began", "closed"), "first")
    # A close after the month is unknown if the month is computed alone.
    known_end = F.when(F.col("closed") < F.col("after"), F.col("closed")).otherwise(F.col("next"))
    end = F.least(known_end, "newest")
    return (
        sessions.join(F.broadcast(spans), closed_within | open_at_end)
        .join(F.broadcast(_newest(events, months)), ["period", "relay"], "left")
        .select("period", "twin", F.greatest(end - begin, F.lit(0).cast("long")).alias("open_us"))
    )


def _literal(month: Month) -> Column:
    us = {"first": month.start_us, "after": month.end_us}
    times = (F.lit(value).cast("long").alias(name) for name, value in us.items())
    return F.struct(F.lit(month.name).alias("period"), *times)


def _newest(events: DataFrame, months: list[Month]) -> DataFrame:
    """Return the time of the newest event of each month at each relay: period, relay, newest."""
    return (
        measures.during(events, months[0].start_us, months[-1].end_us)
        .groupBy(_month(months).alias("period"), measures.name("relay").alias("relay"))
        .agg(F.max(measures.time_us()).alias("newest"))
    )


def _month(months: list[Month]) -> Column:
    """Return the name of the month that a row is in."""
    last, *earlier = reversed(months)
    column = F.lit(last.name)
    for month in earlier:
        column = F.when(measures.time_us() < month.end_us, month.name).otherwise(column)
    return column


def _months(window: Window) -> list[Month]:
    found = []
    for name in window.months():
        first = date.fromisoformat(f"{name}-01")
        whole = Window(first, next_month(first) - timedelta(days=1))
        found.append(Month(name, whole.start_us, whole.end_us))
    return found
