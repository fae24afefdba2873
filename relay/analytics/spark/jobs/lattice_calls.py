"""Invocations of the lattice by hour, link, contract and operation, and how they ended.

Made of the rows of kinds `lattice_out`, `lattice_in` (calls over the bridge) and `lattice_seen`
(invocations that the monitor saw). Of each hour, the table has the 1000 rows with the most calls;
rows with as many are in the order of their names.

    period        day of the hour, YYYY-MM-DD (UTC)
    hour          start of the hour; each row counts in the hour of its own time
    kind          lattice_out: calls of twins; lattice_in: calls of actors; lattice_seen
    link          name of the link; "" for calls between actors
    contract      contract of the provider; "" for calls of actors
    operation     operation of the target; link, contract and operation are "" together for calls
                  that the bridge refused and for flagged invocations, whose names may be invented
    calls         invocations
    ok            calls that succeeded, and invocations that the monitor found nothing wrong with
    refused       calls that the bridge refused: their reason is in REFUSED
    timed_out     calls without an answer in time
    failed        calls that failed for any other reason
    flagged       invocations that the monitor found something wrong with
    bytes         bytes of their payloads; for lattice_seen, of the messages
    answer_bytes  bytes of the results
    p50_us        median duration of a call in microseconds; null without durations. Of n durations
                  in ascending order, it is number ceil(0.50 * n)
    p95_us        the same at 0.95
    max_us        longest duration of a call

REFUSED are no_policy, link, rate, size, malformed and not_found.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from relay.analytics.spark import invocations, measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "lattice_calls"

NAMES: Final = ("link", "contract", "operation")

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("hour", TimestampType()),
        StructField("kind", StringType()),
        StructField("link", StringType()),
        StructField("contract", StringType()),
        StructField("operation", StringType()),
        StructField("calls", LongType()),
        StructField("ok", LongType()),
        StructField("refused", LongType()),
        StructField("timed_out", LongType()),
        StructField("failed", LongType()),
        StructField("flagged", LongType()),
        StructField("bytes", LongType()),
        StructField("answer_bytes", LongType()),
        StructField("p50_us", LongType()),
        StructField("p95_us", LongType()),
        StructField("max_us", LongType()),
    ]
)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table."""
    rows = invocations.during(events, window, *schema.LATTICE_KINDS)
    ok, seen, refused = invocations.is_ok(), invocations.is_seen(), invocations.is_refused()
    timed_out = ~seen & (F.col("reason") == invocations.TIMED_OUT)
    named = ~refused & ~(seen & ~ok)
    counted = (
        rows.groupBy(
            measures.hour_number().alias("number"),
            "kind",
            *(F.when(named, F.col(name)).otherwise("").alias(name) for name in NAMES),
        )
        .agg(
            F.count("*").alias("calls"),
            measures.count_of(ok).alias("ok"),
            measures.count_of(refused).alias("refused"),
            measures.count_of(timed_out).alias("timed_out"),
            measures.count_of(~ok & ~refused & ~timed_out & ~seen).alias("failed"),
            measures.count_of(~ok & seen).alias("flagged"),
            measures.sum_of("size_bytes").alias("bytes"),
            measures.sum_of("answer_bytes").alias("answer_bytes"),
            measures.ascending("latency_us").alias("latencies"),
            F.max("latency_us").alias("max_us"),
        )
        .withColumns({f"p{p}_us": measures.ranked("latencies", p) for p in (50, 95)})
        .drop("latencies")
    )
    order = (F.desc("calls"), "kind", *NAMES)
    return invocations.first(counted, invocations.MOST, "number", *order).select(
        measures.period_of_hour("number", window).alias("period"),
        measures.hour_start("number").alias("hour"),
        *SCHEMA.names[2:],
    )
