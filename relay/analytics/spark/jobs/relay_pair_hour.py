"""What each relay delivered to each partner relay, by hour.

Made of the rows of kind `federated_out`: one for each attempt.

    period    day of the hour, YYYY-MM-DD (UTC)
    hour      start of the hour; each row counts in the hour of its own time
    relay     relay that made the attempts; "" for rows that name none
    remote    partner relay; "" for rows that name none
    attempts  delivery attempts
    bytes     bytes of their envelopes
    p50_us    median round trip, in microseconds: the value at rank ceil(0.50 * n) of the n
              ascending values; null if no attempt has one
    p95_us    the same at 0.95
    p99_us    the same at 0.99
    failed    attempts whose reason is not `none`
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "relay_pair_hour"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("hour", TimestampType()),
        StructField("relay", StringType()),
        StructField("remote", StringType()),
        StructField("attempts", LongType()),
        StructField("bytes", LongType()),
        StructField("p50_us", LongType()),
        StructField("p95_us", LongType()),
        StructField("p99_us", LongType()),
        StructField("failed", LongType()),
    ]
)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table."""
    rows = measures.during(events, window.start_us, window.end_us, schema.FEDERATED_OUT)
    return (
        rows.groupBy(
            measures.hour_number().alias("number"),
            measures.name("relay").alias("relay"),
            measures.name("remote").alias("remote"),
        )
        .agg(
            F.count("*").alias("attempts"),
            measures.sum_of("size_bytes").alias("bytes"),
            measures.ascending("latency_us").alias("latencies"),
            (F.count("*") - measures.count_of(F.col("reason") == schema.NONE)).alias("failed"),
        )
        .select(
            measures.day_of_hour("number").alias("period"),
            measures.hour_start("number").alias("hour"),
            *("relay", "remote", "attempts", "bytes"),
            *(measures.ranked("latencies", p).alias(f"p{p}_us") for p in measures.PERCENTILES),
            "failed",
        )
    )
