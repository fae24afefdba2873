"""Invocations that the monitor found something wrong with, by origin, host and reason.

Made of the rows of kind `lattice_seen` with another reason than `none`: forged, replayed, unsigned
or malformed messages, see [the lattice](../operate/lattice.md). Origin and host are what the
message claims; the forger of a message chooses them. Of each day, the table has the 1000 rows with
the most invocations.

    period       YYYY-MM-DD (UTC)
    place        1 to 1000: most invocations first, then by origin, host and reason
    origin       public key of the caller; "" for messages that cannot be decoded
    host_id      host that the message names; "" where it names none
    reason       what is wrong, such as replay, signature, hash, issuer or undecodable
    invocations  messages
    targets      different actors and providers that they called
    bytes        bytes of the messages
    first_us     first of them, in microseconds since 1970
    last_us      last of them
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import invocations, measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "lattice_forged"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("place", LongType()),
        StructField("origin", StringType()),
        StructField("host_id", StringType()),
        StructField("reason", StringType()),
        StructField("invocations", LongType()),
        StructField("targets", LongType()),
        StructField("bytes", LongType()),
        StructField("first_us", LongType()),
        StructField("last_us", LongType()),
    ]
)

_KEYS: Final = ("origin", "host_id", "reason")


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table."""
    flagged = invocations.during(events, window, schema.LATTICE_SEEN).where(~invocations.is_ok())
    each = (
        flagged.withColumns({"day": measures.day_number(), "origin": F.col("src_key")})
        .groupBy("day", *_KEYS)
        .agg(
            F.count("*").alias("invocations"),
            F.count_distinct(F.when(F.col("dst_key") != "", F.col("dst_key"))).alias("targets"),
            measures.sum_of("size_bytes").alias("bytes"),
            F.min(measures.time_us()).alias("first_us"),
            F.max(measures.time_us()).alias("last_us"),
        )
    )
    order = (F.desc("invocations"), *_KEYS)
    return invocations.first(each, invocations.MOST, "day", *order).select(
        measures.day_name("day").alias("period"), *SCHEMA.names[1:]
    )
