"""What each relay did for each protocol, by hour.

Made of the rows of kinds `session_open`, `session_close`, `accepted`, `delivered` and `dropped`.

    period           day of the hour, YYYY-MM-DD (UTC)
    hour             start of the hour; each row counts in the hour of its own time
    relay            the relay; "" for rows that name none
    protocol         rmb or sbd
    opened           sessions that were opened
    closed           sessions that ended
    accepted         messages (SBD: packets) that the relay accepted from its clients
    accepted_bytes   bytes of these messages or packets
    delivered        messages that the relay wrote to its clients; 0 for SBD, whose packets are
                     delivered unless they are dropped
    delivered_bytes  bytes of these messages
    dropped          messages (SBD: packets) that ended undelivered
    dropped_bytes    bytes of these messages or packets
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "protocol_hour"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("hour", TimestampType()),
        StructField("relay", StringType()),
        StructField("protocol", StringType()),
        StructField("opened", LongType()),
        StructField("closed", LongType()),
        StructField("accepted", LongType()),
        StructField("accepted_bytes", LongType()),
        StructField("delivered", LongType()),
        StructField("delivered_bytes", LongType()),
        StructField("dropped", LongType()),
        StructField("dropped_bytes", LongType()),
    ]
)

_KINDS: Final = {
    "opened": schema.SESSION_OPEN,
    "closed": schema.SESSION_CLOSE,
    "accepted": schema.ACCEPTED,
    "delivered": schema.DELIVERED,
    "dropped": schema.DROPPED,
}


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table."""
    rows = measures.during(events, window.start_us, window.end_us, *_KINDS.values(), of=None)
    of_kind = {name: F.col("kind") == kind for name, kind in _KINDS.items()}
    return (
        rows.groupBy(
            measures.hour_number().alias("number"),
            measures.name("relay").alias("relay"),
            measures.protocol().alias("protocol"),
        )
        .agg(
            *(measures.count_of(condition).alias(name) for name, condition in of_kind.items()),
            *(
                measures.sum_of("size_bytes", of_kind[name]).alias(f"{name}_bytes")
                for name in ("accepted", "delivered", "dropped")
            ),
        )
        .select(
            measures.period_of_hour("number", window).alias("period"),
            measures.hour_start("number").alias("hour"),
            *SCHEMA.names[2:],
        )
    )
