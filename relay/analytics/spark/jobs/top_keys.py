"""The 100 SBD keys that sent the most bytes in a day.

Made of the rows of kind `accepted` of SBD.

    period     YYYY-MM-DD (UTC)
    place      1 to 100: by bytes, the most first, then by key
    key        the sender's public key, base64url without padding; "(other)" for all that came when
               a recorder knew as many keys as it keeps; "" for rows that name none
    messages   packets that the relays took from it
    bytes      of these, each with the 32 bytes of its destination
    share_ppm  bytes * 1000000 div the bytes of all keys that day; 0 where these are 0
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
