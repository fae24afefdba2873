"""The order of other relays by their failures, recent ones counting more.

The weight of a failure halves with each hour of its age: at the end of the day one of its last hour
weighs 2^23, one of its first hour 1. Relays rank other relays the same way while they run; this is
the order of the whole day, over all relays that record.

    period    YYYY-MM-DD (UTC)
    place     from 1 (fewest failures) on: by score, then by name
    remote    the other relay, each one that was tried that day; "" for rows that name none
    failures  rows of kind `federated_out` whose reason is not `none`
    score     sum over the failures of 2^(23 - age), age = 23 - hour of the day, whole hours
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "federation_rank"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("place", LongType()),
        StructField("remote", StringType()),
        StructField("failures", LongType()),
        StructField("score", LongType()),
    ]
)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table."""
    rows = measures.during(events, window.start_us, window.end_us, schema.FEDERATED_OUT)
    failed = ~F.col("reason").eqNullSafe(schema.NONE)
    hour_of_day = (measures.hour_number() % 24).cast("int")
    weight = F.call_function("shiftleft", F.lit(1).cast("long"), hour_of_day)
    order = Over.partitionBy("day").orderBy("score", "remote")
    return (
        rows.groupBy(measures.day_number().alias("day"), measures.name("remote").alias("remote"))
        .agg(
            measures.count_of(failed).alias("failures"),
            F.sum(F.when(failed, weight).otherwise(F.lit(0).cast("long"))).alias("score"),
        )
        .select(
            measures.day_name("day").alias("period"),
            F.row_number().over(order).cast("long").alias("place"),
            *SCHEMA.names[2:],
        )
    )
