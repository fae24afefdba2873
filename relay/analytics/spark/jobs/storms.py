"""Storms: a session that was opened again and again.

The openings of one twin's session name are put in the order of (time, uid). More than 600 s
between two begins a new group, and a group of five openings or more is a storm. Whichever relays
they reached makes no difference: a client in trouble tries all it knows.

    period    day of `first_us`
    twin      whose session it was; 0 for rows that name none, and for SBD
    session   its name, "" when it has none; of SBD the client's key
    first_us  time of the first opening
    last_us   time of the last one
    opens     how many there were
    protocol  rmb or sbd

A day is read with a day before and one after it: a storm belongs to the day it began, however early
in the morning it goes on, and what is left of it after the end of the next day is not counted. So
the figures of a day do not depend on how many are computed at once.
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
    """One row for each storm that began in the window."""
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
    # Groups of one name begin at different times, so that of its first opening names a group.
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
