"""What each twin sent, by hour, and what became of it.

Made of the rows of kinds `accepted`, `delivered` and `dropped`. Each row counts in the hour of its
own time: a message that was accepted at 9:59 and delivered at 10:00 counts in both hours. Every row
counts, also when a message was delivered twice; the audit counts such messages.

    period           day of the hour, YYYY-MM-DD (UTC)
    hour             start of the hour
    src_twin         sender; 0 for rows that name none
    accepted         messages from it that relays accepted
    accepted_bytes   bytes of their envelopes
    delivered        messages from it that relays wrote to their receivers
    delivered_bytes  bytes of their envelopes
    p50_us           median time from acceptance to delivery, in microseconds: the value at rank
                     ceil(0.50 * n) of the n ascending values of the delivered rows; null if there
                     are none
    p95_us           the same at 0.95
    p99_us           the same at 0.99
    dropped_REASON   dropped messages, a column for each reason in REASONS
    dropped_other    messages dropped for any other reason, or without a reason

REASONS are the reasons of messages in docs/protocol/reasons.md.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "twin_hour"

REASONS: Final = (
    *("unparsable", "empty", "text_frame", "too_large", "wrong_source", "missing_destination"),
    *("unknown_twin", "no_relay", "offline_failfast", "limit_count", "limit_size", "banned"),
    *("queue_full", "source_share", "storage_full", "expired", "queue_expired", "bad_signature"),
    *("not_here", "remote_4xx", "remote_5xx", "remote_timeout", "outbox_full", "purged"),
    *("look_up_failed", "no_usable_relay", "source_full", "twin_full"),
)
"""Reasons why a message is dropped: names of `proto.rmb.reasons`, which executors do not have."""

OTHER: Final = "other"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("hour", TimestampType()),
        StructField("src_twin", LongType()),
        StructField("accepted", LongType()),
        StructField("accepted_bytes", LongType()),
        StructField("delivered", LongType()),
        StructField("delivered_bytes", LongType()),
        StructField("p50_us", LongType()),
        StructField("p95_us", LongType()),
        StructField("p99_us", LongType()),
        *(StructField(f"dropped_{reason}", LongType()) for reason in (*REASONS, OTHER)),
    ]
)


_ACCEPTED: Final = -2
_DELIVERED: Final = -1
_DROPPED: Final = range(1, len(REASONS) + 1)
_DROPPED_OTHER: Final = 0


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table.

    Counts and latencies are grouped separately: lists of values must be grouped row by row, while
    counts alone run as compiled code and are reduced to one row per group before the shuffle.
    """
    kinds = (schema.ACCEPTED, schema.DELIVERED, schema.DROPPED)
    rows = measures.during(events, window.start_us, window.end_us, *kinds)
    keys = (measures.hour_number().alias("number"), measures.twin("src_twin").alias("src_twin"))
    delivered = rows.where(F.col("kind") == schema.DELIVERED).where("latency_us is not null")
    latencies = (
        delivered.groupBy(*keys)
        .agg(measures.ascending("latency_us").alias("values"))
        .select(
            *("number", "src_twin"),
            *(measures.ranked("values", p).alias(f"p{p}_us") for p in measures.PERCENTILES),
        )
    )
    return (
        _counts(rows.select(*keys, _what().alias("what"), "size_bytes"))
        .join(latencies, ["number", "src_twin"], "left")
        .select(
            measures.period_of_hour("number", window).alias("period"),
            measures.hour_start("number").alias("hour"),
            *SCHEMA.names[2:],
        )
    )


def _what() -> Column:
    """Return a number for what a row counts as; so the thirty counters compare no strings."""
    position = F.array_position(F.array(*map(F.lit, REASONS)), F.col("reason")).cast("int")
    return (
        F.when(F.col("kind") == schema.ACCEPTED, _ACCEPTED)
        .when(F.col("kind") == schema.DELIVERED, _DELIVERED)
        .otherwise(F.coalesce(position, F.lit(_DROPPED_OTHER)))
    )


def _counts(rows: DataFrame) -> DataFrame:
    what = F.col("what")
    accepted, delivered = what == _ACCEPTED, what == _DELIVERED
    return rows.groupBy("number", "src_twin").agg(
        measures.count_of(accepted).alias("accepted"),
        measures.sum_of("size_bytes", accepted).alias("accepted_bytes"),
        measures.count_of(delivered).alias("delivered"),
        measures.sum_of("size_bytes", delivered).alias("delivered_bytes"),
        *(
            measures.count_of(what == number).alias(f"dropped_{reason}")
            for number, reason in zip((*_DROPPED, _DROPPED_OTHER), (*REASONS, OTHER), strict=True)
        ),
    )
