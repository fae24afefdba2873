"""How well each partner relay answered, by hour.

Made of the rows of kind `federated_out` of all relays that record: one for each attempt.

    period    day of the hour, YYYY-MM-DD (UTC)
    hour      start of the hour; each row counts in the hour of its own time
    remote    the partner relay; "" for rows that name none
    attempts  delivery attempts
    ok        attempts whose reason is `none`
    permille  ok * 1000 / attempts, rounded down
    p95_us    round trip, in microseconds: the value at rank ceil(0.95 * n) of the n ascending
              values; null if there are none
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "federation_slo"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("hour", TimestampType()),
        StructField("remote", StringType()),
        StructField("attempts", LongType()),
        StructField("ok", LongType()),
        StructField("permille", LongType()),
        StructField("p95_us", LongType()),
    ]
)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table."""
    rows = measures.during(events, window.start_us, window.end_us, schema.FEDERATED_OUT)
    return (
        rows.groupBy(
            measures.hour_number().alias("number"), measures.name("remote").alias("remote")
        )
        .agg(
            F.count("*").alias("attempts"),
            measures.count_of(F.col("reason") == schema.NONE).alias("ok"),
            measures.ascending("latency_us").alias("latencies"),
        )
        .select(
            measures.day_of_hour("number").alias("period"),
            measures.hour_start("number").alias("hour"),
            *("remote", "attempts", "ok"),
            F.expr("ok * 1000 div attempts").alias("permille"),
            measures.ranked("latencies", 95).alias("p95_us"),
        )
    )
