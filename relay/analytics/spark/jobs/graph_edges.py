"""Edges of the graph of relays and twins: which node sent to which, and through which relays.

Made of the rows of a day. Every row counts:

    sends     twin to relay: accepted rows, from `src_twin` to `relay`
    hands     relay to relay: federated_out rows with the reason `none`, from `relay` to `remote`
    delivers  relay to twin: delivered rows, from `relay` to `dst_twin`
    talks     twin to twin: delivered rows, from `src_twin` to `dst_twin`

    period    day of the rows
    link      one of the four names above
    src       node where the edge begins: number of a twin, or domain of a relay
    dst       node where the edge ends
    messages  rows, one for each message
    bytes     bytes of their envelopes

Rows that do not name both ends make no edge. The job reads no other day.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "graph_edges"

SENDS: Final = "sends"
HANDS: Final = "hands"
DELIVERS: Final = "delivers"
TALKS: Final = "talks"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("link", StringType()),
        StructField("src", StringType()),
        StructField("dst", StringType()),
        StructField("messages", LongType()),
        StructField("bytes", LongType()),
    ]
)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Return one row for each edge of each day of the window."""
    kinds = (schema.ACCEPTED, schema.DELIVERED, schema.FEDERATED_OUT)
    rows = measures.during(events, window.start_us, window.end_us, *kinds)
    kind, taken = F.col("kind"), F.col("reason") == schema.NONE
    delivers = _link(DELIVERS, "relay", "dst_twin")
    links = (
        F.when(kind == schema.ACCEPTED, F.array(_link(SENDS, "src_twin", "relay")))
        .when(kind == schema.DELIVERED, F.array(delivers, _link(TALKS, "src_twin", "dst_twin")))
        .when(taken, F.array(_link(HANDS, "relay", "remote")))
    )
    # Numbers are converted to text only after the sums, when few rows remain.
    keys = ("day", "link", "src_twin", "src_relay", "dst_twin", "dst_relay")
    return (
        rows.select(measures.day_number().alias("day"), "size_bytes", F.inline(links))
        .groupBy(*keys)
        .agg(F.count("*").alias("messages"), measures.sum_of("size_bytes").alias("bytes"))
        .select(
            measures.day_name("day").alias("period"),
            "link",
            *(
                F.coalesce(f"{end}_relay", F.col(f"{end}_twin").cast("string")).alias(end)
                for end in ("src", "dst")
            ),
            "messages",
            "bytes",
        )
        .where(F.col("src").isNotNull() & F.col("dst").isNotNull())
    )


def _link(link: str, source: str, target: str) -> Column:
    """Return an edge between the nodes in two columns of a row; each end is a twin or a relay."""
    ends = []
    for end, column in (("src", source), ("dst", target)):
        of_twin = column.endswith("_twin")
        twin = F.col(column) if of_twin else F.lit(None).cast("long")
        relay = F.lit(None).cast("string") if of_twin else F.col(column)
        ends += [twin.alias(f"{end}_twin"), relay.alias(f"{end}_relay")]
    return F.struct(F.lit(link).alias("link"), *ends)
