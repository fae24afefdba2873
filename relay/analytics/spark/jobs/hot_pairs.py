"""The 100 pairs of sender and receiver with the most bytes in a day.

Made of the rows of kind `accepted`. There and back are two pairs.

    period     YYYY-MM-DD (UTC)
    place      1 to 100: by bytes, the most first, then by sender, then by receiver
    src_twin   sender; 0 for rows that name none
    dst_twin   receiver; 0 for rows that name none
    messages   relays took from the one for the other
    bytes      of their envelopes
    share_ppm  bytes * 1000000 div the accepted bytes of all pairs that day; 0 where these are 0
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import talkers
from relay.analytics.spark.window import Window

TABLE: Final = "hot_pairs"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("place", LongType()),
        StructField("src_twin", LongType()),
        StructField("dst_twin", LongType()),
        StructField("messages", LongType()),
        StructField("bytes", LongType()),
        StructField("share_ppm", LongType()),
    ]
)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Compute the table."""
    return talkers.most(events, window, src_twin="src_twin", dst_twin="dst_twin")
