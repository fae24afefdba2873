"""The calls in the lattice as a graph: edges between twins, actors and providers.

Made of the rows of all three kinds of the lattice, except calls that the bridge refused and
invocations that the monitor flagged.

    period        YYYY-MM-DD (UTC)
    kind          lattice_out: from a twin to an actor or provider; lattice_in: from an actor to a
                  twin; lattice_seen: between the two that the invocation names, also the bridge
    src           number of the twin, or public key of the origin
    dst           number of the twin, or public key of the target
    calls         invocations
    failed        calls that failed; 0 for lattice_seen
    bytes         bytes of their payloads; for lattice_seen, of the messages
    answer_bytes  bytes of the results

Rows that do not name both ends make no edge.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from relay.analytics.spark import invocations, measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "lattice_graph"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("kind", StringType()),
        StructField("src", StringType()),
        StructField("dst", StringType()),
        StructField("calls", LongType()),
        StructField("failed", LongType()),
        StructField("bytes", LongType()),
        StructField("answer_bytes", LongType()),
    ]
)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Return one row for each edge of each day of the window."""
    rows = invocations.during(events, window, *schema.LATTICE_KINDS)
    ok, seen = invocations.is_ok(), invocations.is_seen()
    return (
        rows.where(~invocations.is_refused() & ~(seen & ~ok))
        .groupBy(
            measures.day_number().alias("day"),
            "kind",
            _end("src", schema.LATTICE_OUT),
            _end("dst", schema.LATTICE_IN),
        )
        .agg(
            F.count("*").alias("calls"),
            measures.count_of(~ok).alias("failed"),
            measures.sum_of("size_bytes").alias("bytes"),
            measures.sum_of("answer_bytes").alias("answer_bytes"),
        )
        .where((F.col("src") != "") & (F.col("dst") != ""))
        .select(measures.day_name("day").alias("period"), *SCHEMA.names[1:])
    )


def _end(end: str, of_twin: str) -> Column:
    """Return one end of an edge, which is a twin in the rows of the kind `of_twin`."""
    twin = F.coalesce(F.col(f"{end}_twin").cast("string"), F.lit(""))
    return F.when(F.col("kind") == of_twin, twin).otherwise(F.col(f"{end}_key")).alias(end)
