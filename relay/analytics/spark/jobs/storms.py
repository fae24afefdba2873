"""Storms: a session that was opened again and again.

The job sorts the openings of each session name of a twin by time and uid. More than 600 s between
two openings starts a new group, and a group of at least five openings is a storm. The openings may
be at different relays, because a client in trouble tries all relays it knows.

    period    day of `first_us`
    twin      twin of the session; 0 for rows that name none, and for SBD
    session   name of the session, "" if it has none; for SBD the client's key
    first_us  time of the first opening
    last_us   time of the last opening
    opens     number of openings
    protocol  rmb or sbd

To compute a day, the job also reads the day before it and the day after it. A storm belongs to the
day on which it began; openings after the end of the next day do not count. So the figures of a day
do not depend on how many days are computed together.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "storms"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("twin", LongType()),
        StructField("session", StringType()),
        StructField("first_us", LongType()),
        StructField("last_us", LongType()),
        StructField("opens", LongType()),
        StructField("protocol", StringType()),
    ]
)

GAP_US: Final = 600 * measures.SECOND_US
LEAST: Final = 5


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Return one row for each storm that began in the window."""
    start_us, end_us = window.start_us - measures.DAY_US, window.end_us + measures.DAY_US
    opened = measures.during(events, start_us, end_us, schema.SESSION_OPEN, of=None).select(
        measures.protocol().alias("protocol"),
        measures.twin("src_twin").alias("twin"),
        measures.session().alias("session"),
        measures.time_us().alias("us"),
        "uid",
    )
    ordered = Over.partitionBy("protocol", "twin", "session").orderBy("us", "uid")
    before = F.lag("us").over(ordered)
    begins = F.when(before.isNull() | (F.col("us") - before > GAP_US), F.col("us"))
    until = measures.begin(F.col("first_us"), measures.DAY_US) + 2 * measures.DAY_US
    # The groups of a name begin at different times, so `first_us` identifies a group.
    return (
        opened.withColumn("begins", begins)
        .withColumn("first_us", F.last("begins", ignorenulls=True).over(ordered))
        .where(F.col("first_us").between(window.start_us, window.end_us - 1))
        .where(F.col("us") < until)
        .groupBy("protocol", "twin", "session", "first_us")
        .agg(F.max("us").alias("last_us"), F.count(F.lit(1)).alias("opens"))
        .where(F.col("opens") >= LEAST)
        .select(measures.day_of(F.col("first_us")).alias("period"), *SCHEMA.names[1:])
    )
