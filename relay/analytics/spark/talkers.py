"""Who sent the most in a day: the same for twins and for pairs of twins."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

PLACES: Final = 100
"""How many of a day are told."""


def most(events: DataFrame, window: Window, **twins: str) -> DataFrame:
    """The first of each day by accepted bytes.

    Args:
        events: rows of all kinds.
        window: the days.
        twins: who: names of the result's columns and the events' they come from. Those with as
            many bytes are in their ascending order.

    Returns:
        period, place, the twins, messages, bytes, share_ppm.
    """
    rows = measures.during(events, window.start_us, window.end_us, schema.ACCEPTED)
    days = rows.select(
        measures.day_number().alias("day"),
        *(measures.twin(column).alias(who) for who, column in twins.items()),
        "size_bytes",
    )
    order = Over.partitionBy("day").orderBy(F.desc("bytes"), *twins)
    each = days.groupBy("day", *twins).agg(
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
        *twins,
        "messages",
        "bytes",
        share.alias("share_ppm"),
    )
