"""Who sent the most in a day: the same for twins, for pairs of twins and for keys of SBD."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

PLACES: Final = 100
"""How many of a day are told."""


def most(events: DataFrame, window: Window, of: str = schema.RMB, **senders: str) -> DataFrame:
    """The first of each day by accepted bytes.

    Args:
        events: rows of all kinds.
        window: the days.
        of: the protocol.
        senders: who: names of the result's columns and the events' they come from. Those with as
            many bytes are in their ascending order.

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
    # Only what may be among the first of its task reaches the one task of the day.
    first = each.withColumn("place", F.row_number().over(order)).where(F.col("place") <= PLACES)
    totals = days.groupBy("day").agg(measures.sum_of("size_bytes").alias("total"))
    # A decimal: a day of 10 TB times a million is beyond 64 bits.
    share = F.expr("if(total = 0, 0L, cast(bytes as decimal(19, 0)) * 1000000 div total)")
    return first.join(F.broadcast(totals), "day").select(
        measures.day_name("day").alias("period"),
        F.col("place").cast("long").alias("place"),
        *senders,
        "messages",
        "bytes",
        share.alias("share_ppm"),
    )
