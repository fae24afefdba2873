"""Functions that the tables about the lattice share: rows, outcomes, first rows of a period."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

REFUSED: Final = ("no_policy", "link", "rate", "size", "malformed", "not_found")
"""Reasons of calls that the bridge did not pass on, whose names anyone can invent."""

TIMED_OUT: Final = "timed_out"

BRIDGED: Final = (schema.LATTICE_OUT, schema.LATTICE_IN)

MOST: Final = 1000
"""Maximum rows of an hour or a day, because callers can invent operations, keys and hosts."""


def during(events: DataFrame, window: Window, *kinds: str) -> DataFrame:
    """Return the rows of some kinds; keys and names are "" where a row has none."""
    rows = measures.during(events, window.start_us, window.end_us, *kinds, of=schema.LATTICE)
    names = ("src_key", "dst_key", "link", "contract", "operation", "host_id")
    reason = F.coalesce(F.col("reason"), F.lit(schema.NONE))
    return rows.withColumns({name: measures.name(name) for name in names} | {"reason": reason})


def is_seen() -> Column:
    """Return whether a row is from the monitor."""
    return F.col("kind") == schema.LATTICE_SEEN


def is_ok() -> Column:
    """Return whether a call succeeded, or the monitor found nothing wrong with an invocation."""
    return F.col("reason") == schema.NONE


def is_refused() -> Column:
    """Return whether the bridge refused a call."""
    return ~is_seen() & F.col("reason").isin(*REFUSED)


def first(rows: DataFrame, most: int, per: str, *order: Column | str) -> DataFrame:
    """Return the first rows of each `per` in an order without ties, with their rank as `place`."""
    over = Over.partitionBy(per).orderBy(*order)
    placed = rows.withColumn("place", F.row_number().over(over).cast("long"))
    return placed.where(F.col("place") <= most)
