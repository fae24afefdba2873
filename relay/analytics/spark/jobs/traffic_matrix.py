"""Messages from each relay to each relay, by day.

Each message that was delivered on a day counts once, with its first delivery, from the relay that
accepted it to the relay that delivered it. The `uid` identifies a message; a uid that appears again
more than a day later is another message.

    period    day of the first delivery, YYYY-MM-DD (UTC)
    origin    relay of the accepted row: the first one with this uid from the day before to an hour
              after the day, at equal times the first relay by name; "" if it names none
    final     relay of the delivered row: the first one of the day with this uid, at equal times the
              first relay by name, then the smaller envelope; "" if it names none
    messages  number of messages
    bytes     bytes of their envelopes, as delivered

A message counts if nothing with its uid was delivered the day before (otherwise it counted there),
and if it has an accepted row: without one its origin is unknown, which the audit reports. The hour
after the day allows for different clocks of relays: by their clocks, a message may be delivered
before it was accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "traffic_matrix"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("origin", StringType()),
        StructField("final", StringType()),
        StructField("messages", LongType()),
        StructField("bytes", LongType()),
    ]
)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table.

    There is one shuffle by uid, and one sort by uid and day: the values that a message needs from
    the days around come from its neighbours in that order.
    """
    rows = measures.during(
        events,
        window.start_us - measures.DAY_US,
        window.end_us + measures.HOUR_US,
        *(schema.ACCEPTED, schema.DELIVERED),
    ).where(F.col("uid").isNotNull())
    accepted, delivered = (F.col("kind") == k for k in (schema.ACCEPTED, schema.DELIVERED))
    within_first_hour = measures.time_us() % measures.DAY_US < measures.HOUR_US
    taken = F.struct(measures.time_us().alias("us"), measures.name("relay").alias("relay"))
    given = F.struct(
        measures.time_us().alias("us"),
        measures.name("relay").alias("relay"),
        F.coalesce(F.col("size_bytes"), F.lit(0)).alias("size"),
    )
    days = (
        rows.repartition("uid")
        .groupBy("uid", measures.day_number().alias("day"))
        .agg(
            F.min(F.when(accepted, taken)).alias("taken"),
            F.min(F.when(accepted & within_first_hour, taken)).alias("taken_early"),
            F.min(F.when(delivered, given)).alias("given"),
        )
    )
    first, last = (us // measures.DAY_US for us in (window.start_us, window.end_us - 1))
    return (
        days.select(
            "day",
            "given",
            _neighbour("given", F.lag, -1).alias("given_before"),
            F.least(
                _neighbour("taken", F.lag, -1), "taken", _neighbour("taken_early", F.lead, 1)
            ).alias("taken"),
        )
        .where(F.col("day").between(first, last))
        .where("given is not null and given_before is null and taken is not null")
        .groupBy("day", "taken.relay", "given.relay")
        .agg(F.count("*").alias("messages"), F.sum("given.size").alias("bytes"))
        .toDF("day", "origin", "final", "messages", "bytes")
        .select(measures.day_name("day").alias("period"), *SCHEMA.names[1:])
    )


def _neighbour(column: str, reach: Callable[[str, int], Column], days: int) -> Column:
    """Return the value of the uid `days` later; null if it has no rows on that day."""
    order = Over.partitionBy("uid").orderBy("day")
    there = reach("day", 1).over(order) == F.col("day") + days
    return F.when(there, reach(column, 1).over(order))
