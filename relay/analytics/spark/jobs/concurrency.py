"""Concurrency: the highest number of open sessions of each relay, by hour.

In the order of time, each opening adds 1 and the closing of the same connection subtracts 1; at
equal times closings come first. The figure of an hour is the highest sum within it, including the
sum at its start. Hours without an opening or a closing have no row: the sum did not change.

    period    day of `hour`
    relay     the relay; "" for rows that name none
    hour      start of the hour
    peak      highest number of sessions that were open at the same time
    protocol  rmb or sbd; each has its own sum

A connection is one uid at one relay. If it has several opening or closing rows, the earliest
counts; a closing row with the reason `worker_lost` counts only if there is no other. A connection
without a closing row counts as ended 31 days after its opening, because its closing row is probably
lost and would otherwise make the sum wrong forever. Such an end makes no row by itself. If a clock
was set back and the closing is earlier than the opening, it counts at the time of the opening.

To compute a day, the job also reads the 31 days before it, so it knows which sessions are open at
the start of the day, and the figures of a day do not depend on how many days are computed together.
Closings without an opening in that time, and rows without a uid, do not count.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "concurrency"

LONGEST: Final = timedelta(days=31)
"""Longest session that is considered: nodes stay connected for weeks, but hardly longer than their
relay runs between upgrades."""

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("relay", StringType()),
        StructField("hour", TimestampType()),
        StructField("peak", LongType()),
        StructField("protocol", StringType()),
    ]
)

_LONGEST_US: Final = LONGEST // timedelta(microseconds=1)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Return one row for each relay and hour of the window in which sessions began or ended."""
    us, kind = measures.time_us(), F.col("kind")
    start_us, end_us = window.start_us - _LONGEST_US, window.end_us
    kinds = (schema.SESSION_OPEN, schema.SESSION_CLOSE)
    sessions = (
        measures.during(events, start_us, end_us, *kinds, of=None)
        .where(F.col("uid").isNotNull())
        .groupBy(
            measures.name("relay").alias("relay"), measures.protocol().alias("protocol"), "uid"
        )
        .agg(
            F.min(F.when(kind == schema.SESSION_OPEN, us)).alias("opened"),
            measures.closed_us().alias("closed"),
        )
        .where(F.col("opened").isNotNull())
    )
    lost = F.col("opened") + _LONGEST_US
    ended = F.greatest("opened", F.least("closed", lost))  # both ignore nulls
    seen = F.coalesce(F.col("closed") <= lost, F.lit(False))
    steps = sessions.select(
        "relay",
        "protocol",
        F.inline(
            F.array(
                F.struct(
                    F.col("opened").alias("us"), F.lit(1).alias("step"), F.lit(True).alias("seen")
                ),
                F.struct(ended.alias("us"), F.lit(-1).alias("step"), seen.alias("seen")),
            )
        ),
    ).where(F.col("us") < end_us)
    # The sum is computed within each hour, and then over the few hours: with one window over all
    # rows of a relay, there would be only as many tasks as relays.
    inside = Over.partitionBy("relay", "protocol", "hour").orderBy("us", "step")
    until_now = inside.rowsBetween(Over.unboundedPreceding, Over.currentRow)
    hours = (
        steps.withColumn("hour", measures.begin(F.col("us"), measures.HOUR_US))
        .withColumn("sum", F.sum("step").over(until_now))
        .groupBy("relay", "protocol", "hour")
        .agg(F.max("sum").alias("most"), F.sum("step").alias("net"), F.max("seen").alias("seen"))
    )
    each = Over.partitionBy("relay", "protocol")
    before = each.orderBy("hour").rowsBetween(Over.unboundedPreceding, -1)
    carried = F.coalesce(F.sum("net").over(before), F.lit(0))
    return (
        hours.withColumn("carried", carried)
        .where(F.col("seen") & (F.col("hour") >= window.start_us))
        .select(
            measures.day_of(F.col("hour")).alias("period"),
            "relay",
            F.timestamp_micros("hour").alias("hour"),
            (F.col("carried") + F.greatest(F.col("most"), F.lit(0))).alias("peak"),
            "protocol",
        )
    )
