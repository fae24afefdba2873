"""The senders with the most bytes of a day: of twins, of pairs of twins, and of keys of SBD."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

PLACES: Final = 100
"""Number of ranks of a day."""


def most(events: DataFrame, window: Window, of: str = schema.RMB, **senders: str) -> DataFrame:
    """Return the senders of each day with the most accepted bytes.

    Args:
        events: rows of all kinds.
        window: the days.
        of: the protocol.
        senders: columns of the result that identify a sender, and the columns of the events that
            they come from. Senders with the same bytes are in ascending order of these columns.

    Returns:
        period, place, the senders, messages, bytes, share_ppm.
    """
    rows = measures.during(events, window.start_us, window.end_us, schema.ACCEPTED, of=of)
    named = measures.name if of == schema.SBD else measures.twin
    days = rows.select(
        measures.day_number().alias("day"),
        *(named(column).alias(who) for who, column in senders.items()),
        "size_bytes",
    )
    order = Over.partitionBy("day").orderBy(F.desc("bytes"), *senders)
    each = days.groupBy("day", *senders).agg(
        F.count("*").alias("messages"), measures.sum_of("size_bytes").alias("bytes")
    )
    # Each task passes only its own first rows on to the one task of the day.
    first = each.withColumn("place", F.row_number().over(order)).where(F.col("place") <= PLACES)
    totals = days.groupBy("day").agg(measures.sum_of("size_bytes").alias("total"))
    # A decimal, because 10 TB in a day times a million exceed 64 bits.
    share = F.expr("if(total = 0, 0L, cast(bytes as decimal(19, 0)) * 1000000 div total)")
    return first.join(F.broadcast(totals), "day").select(
        measures.day_name("day").alias("period"),
        F.col("place").cast("long").alias("place"),
        *senders,
        "messages",
        "bytes",
        share.alias("share_ppm"),
    )
