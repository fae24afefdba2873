"""Sessions: when each began and ended, and why.

A session is the opening and the closing row of one connection, which have the same uid. If there
are several of either, the earliest counts (at equal times: the first by relay, twin, name,
`latency_us` and reason, null before any value). A closing row with the reason `worker_lost` counts
only if there is no other.

    period       day of `opened_us`
    relay        relay of the session; "" for rows that name none
    twin         twin of the session; 0 for rows that name none, and for SBD
    session      name of the session, "" if it has none; for SBD the client's key
    uid          number of the session
    opened_us    time of the opening row
    closed_us    time of the closing row; null if the session had not ended by the end of the
                 seventh day after the period
    duration_us  how long the session was open: as the relay measured it (`latency_us` of the
                 closing row, which does not depend on changes of the clock), otherwise from
                 `opened_us` to `closed_us`; never below 0; null if `closed_us` is null
    reason       why it ended; null if `closed_us` is null
    protocol     rmb or sbd

To compute a day, the job also reads the seven days after it, and one before it, in case a clock was
set back across midnight. So the rows of a day may change for seven days. Closing rows without an
opening row, and rows without a uid, do not make a session.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "sessions"

FOLLOWED: Final = timedelta(days=7)
"""Time after its day in which the end of a session is looked for; nearly all sessions end in it."""

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("relay", StringType()),
        StructField("twin", LongType()),
        StructField("session", StringType()),
        StructField("uid", LongType()),
        StructField("opened_us", LongType()),
        StructField("closed_us", LongType()),
        StructField("duration_us", LongType()),
        StructField("reason", StringType()),
        StructField("protocol", StringType()),
    ]
)

_FOLLOWED_US: Final = FOLLOWED // timedelta(microseconds=1)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Return one row for each session that began in the window."""
    closing = F.col("kind") == schema.SESSION_CLOSE
    start_us, end_us = window.start_us - measures.DAY_US, window.end_us + _FOLLOWED_US
    kinds = (schema.SESSION_OPEN, schema.SESSION_CLOSE)
    rows = (
        measures.during(events, start_us, end_us, *kinds, of=None)
        .where(F.col("uid").isNotNull())
        .select(
            "uid",
            closing.alias("closing"),
            (closing & measures.recorded_for_lost()).alias("lost"),
            measures.time_us().alias("us"),
            measures.name("relay").alias("relay"),
            measures.twin("src_twin").alias("twin"),
            measures.session().alias("session"),
            "latency_us",
            "reason",
            measures.protocol().alias("protocol"),
        )
    )
    # A join would first need a sort on each side to find the earliest rows; one sort by uid puts
    # the opening rows before the closing ones.
    ordered = Over.partitionBy("uid").orderBy(
        "closing", "lost", "us", "relay", "twin", "session", "latency_us", "reason"
    )
    whole = ordered.rowsBetween(Over.unboundedPreceding, Over.unboundedFollowing)
    end = F.when(F.col("closing"), F.struct("us", "latency_us", "reason"))
    last_us = measures.begin(F.col("us"), measures.DAY_US) + measures.DAY_US + _FOLLOWED_US
    ended = F.col("end.us") < last_us
    measured = F.coalesce("end.latency_us", F.col("end.us") - F.col("us"))
    return (
        rows.withColumn("place", F.row_number().over(ordered))
        .withColumn("end", F.first(end, ignorenulls=True).over(whole))
        .where((F.col("place") == 1) & ~F.col("closing"))
        .where(F.col("us").between(window.start_us, window.end_us - 1))
        .select(
            measures.day_of(F.col("us")).alias("period"),
            "relay",
            "twin",
            "session",
            "uid",
            F.col("us").alias("opened_us"),
            F.when(ended, F.col("end.us")).alias("closed_us"),
            F.when(ended, F.greatest(measured, F.lit(0))).alias("duration_us"),
            F.when(ended, F.col("end.reason")).alias("reason"),
            "protocol",
        )
    )
