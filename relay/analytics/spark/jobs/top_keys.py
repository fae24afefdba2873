"""The 100 SBD keys that sent the most bytes in a day.

Made of the rows of kind `accepted` of SBD.

    period     YYYY-MM-DD (UTC)
    place      1 to 100: most bytes first, then by key
    key        the sender's public key, base64url without padding; "(other)" for keys beyond the
               number that a recorder keeps; "" for rows that name none
    messages   packets from it that relays accepted
    bytes      bytes of these packets, each with the 32 bytes of its destination
    share_ppm  bytes * 1000000 / bytes of all keys that day, rounded down; 0 if these are 0
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import schema, talkers
from relay.analytics.spark.window import Window

TABLE: Final = "top_keys"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("place", LongType()),
        StructField("key", StringType()),
        StructField("messages", LongType()),
        StructField("bytes", LongType()),
        StructField("share_ppm", LongType()),
    ]
)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table."""
    return talkers.most(events, window, schema.SBD, key="src_key")
