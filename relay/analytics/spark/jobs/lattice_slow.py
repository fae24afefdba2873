"""The 100 operations of the lattice that failed most often, or were slow, on a day.

Made of the rows of kinds `lattice_out` and `lattice_in`, except calls that the bridge refused. An
operation is in the table if a call of it failed, or if `p95_us` is at least SLOW_US.

    period     YYYY-MM-DD (UTC)
    place      1 to 100: most failures first, then the largest `p95_us`, then by kind, target, link
               and operation
    kind       lattice_out: calls of twins; lattice_in: calls of actors
    target     public key of the actor or provider that was called
    link       name of the link; "" for calls of actors
    operation  operation of the target
    calls      calls that the bridge passed on
    failed     calls that failed, timed out or were not delivered
    reason     most frequent reason of the failures, the first by name of several; "" without
               failures
    p50_us     median duration of a call in microseconds; null without durations. Of n durations in
               ascending order, it is number ceil(0.50 * n)
    p95_us     the same at 0.95
    max_us     longest duration of a call
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import invocations, measures
from relay.analytics.spark.window import Window

TABLE: Final = "lattice_slow"

SLOW_US: Final = 1_000_000
PLACES: Final = 100

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("place", LongType()),
        StructField("kind", StringType()),
        StructField("target", StringType()),
        StructField("link", StringType()),
        StructField("operation", StringType()),
        StructField("calls", LongType()),
        StructField("failed", LongType()),
        StructField("reason", StringType()),
        StructField("p50_us", LongType()),
        StructField("p95_us", LongType()),
        StructField("max_us", LongType()),
    ]
)

_KEYS: Final = ("day", "kind", "target", "link", "operation")


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table."""
    passed = invocations.during(events, window, *invocations.BRIDGED)
    by_reason = (
        passed.where(~invocations.is_refused())
        .withColumns({"day": measures.day_number(), "target": F.col("dst_key")})
        .groupBy(*_KEYS, "reason")
        .agg(F.count("*").alias("n"), F.collect_list("latency_us").alias("latencies"))
    )
    failed = ~invocations.is_ok()
    # The smallest (-n, name) is the most frequent reason; of several, the first by name.
    reason = F.min(F.when(failed, F.struct((-F.col("n")).alias("n"), F.col("reason"))))
    each = (
        by_reason.groupBy(*_KEYS)
        .agg(
            measures.sum_of("n").alias("calls"),
            measures.sum_of("n", failed).alias("failed"),
            F.coalesce(reason["reason"], F.lit("")).alias("reason"),
            F.sort_array(F.flatten(F.collect_list("latencies"))).alias("latencies"),
        )
        .withColumns(
            {f"p{p}_us": measures.ranked("latencies", p) for p in (50, 95)}
            | {"max_us": F.array_max("latencies")}
        )
        .drop("latencies")
        .where((F.col("failed") > 0) | (F.col("p95_us") >= SLOW_US))
    )
    order = (F.desc("failed"), F.desc_nulls_last("p95_us"), *_KEYS[1:])
    return invocations.first(each, PLACES, "day", *order).select(
        measures.day_name("day").alias("period"), *SCHEMA.names[1:]
    )
