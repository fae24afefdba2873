"""The ranking of partner relays by failures, with recent failures counting more.

The weight of a failure halves with each hour of its age: a failure in the last hour of the day
weighs 2^23, one in the first hour 1. The table covers the whole day and all relays that record. A
running relay ranks partner relays in another way: by their failures within the last
`federation.ranker_period_s`, all with the same weight.

    period    YYYY-MM-DD (UTC)
    place     1 is the lowest score; equal scores are sorted by name
    remote    partner relay with at least one attempt that day; "" for rows that name none
    failures  rows of kind `federated_out` whose reason is not `none`
    score     sum of 2^(23 - age) over the failures, age = 23 - hour of the day, in whole hours
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
