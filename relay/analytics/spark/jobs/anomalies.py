"""Anomalies: hours in which a twin sent far more, or far less, than in the week before.

x is how many messages of a twin were accepted in an hour, 0 where there are none: for a twin that
has some hour of 20 or more, in every hour between the first and the last one with an accepted
message of anyone. The baseline of an hour are the 168 hours before it, where all of these exist.
An hour is an anomaly if

    |x - med| >= 20  and  |x - med| * 10000 >= 6 * 14826 * max(mad, 1)

that is, if x is six standard deviations off, as the median absolute deviation estimates them.

    period  day of `hour`
    hour    begin of the hour
    twin    the sender; 0 for rows that name none
    x       its accepted messages in the hour
    med     the 84th smallest of the 168 hours before
    mad     the 84th smallest of |x_i - med| over these

A day is read with 8 days before it and one after it, and what the first and the last hour are is
asked for each day of these: so the figures of a day do not depend on how many are computed at once,
and a day nobody sent anything in is found by the messages of the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from relay.analytics.spark import measures, schema
from relay.analytics.spark.window import Window

TABLE: Final = "anomalies"

SCHEMA: Final = StructType(
    [
        StructField("period", StringType()),
        StructField("hour", TimestampType()),
        StructField("twin", LongType()),
        StructField("x", LongType()),
        StructField("med", LongType()),
        StructField("mad", LongType()),
    ]
)

BASELINE: Final = 168
MIDDLE: Final = BASELINE // 2
"""Of an even count, the lower of the two middle values."""
LEAST: Final = 20

DAYS_BEFORE: Final = 8
DAYS_AFTER: Final = 1

_DAY_HOURS: Final = 24
_FOUND: Final = pa.schema([(name, pa.int64()) for name in ("number", "twin", "x", "med", "mad")])
_FOUND_SPARK: Final = ", ".join(f"{name} long" for name in _FOUND.names)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """One row for each twin and hour of the window that is an anomaly."""
    start_us = window.start_us - DAYS_BEFORE * measures.DAY_US
    end_us = window.end_us + DAYS_AFTER * measures.DAY_US
    counts = (
        measures.during(events, start_us, end_us, schema.ACCEPTED)
        .groupBy(measures.twin("src_twin").alias("twin"), measures.hour_number().alias("number"))
        .agg(F.count("*").alias("x"))
    )
    # No hour can be an anomaly without LEAST messages in it or before it. That leaves few twins,
    # and only their hours go to Python.
    qualified = counts.where(F.col("x") >= LEAST).select("twin").distinct()
    first, last = window.start_us // measures.HOUR_US, window.end_us // measures.HOUR_US
    return (
        counts.join(F.broadcast(qualified), "twin", "left_semi")
        .groupBy("twin")
        .applyInArrow(_finder(first, last), _FOUND_SPARK)
        .withColumn("day", F.expr(f"number div {_DAY_HOURS}"))
        .join(F.broadcast(_spans(counts, window)), "day")
        .where(F.col("number").between(F.col("first") + BASELINE, F.col("last")))
        .select(
            measures.day_of_hour("number").alias("period"),
            measures.hour_start("number").alias("hour"),
            *SCHEMA.names[2:],
        )
    )


def _spans(counts: DataFrame, window: Window) -> DataFrame:
    """(day, first, last): the first and the last hour there is, as each day of the window sees it.

    The counts are asked for more than 0, which all are, so that this is the same plan up to the
    shuffle as the main one's, and Spark runs it once.
    """
    days = F.sequence(
        F.lit(window.start_us // measures.DAY_US), F.lit(window.end_us // measures.DAY_US - 1)
    )
    day_start = F.col("day") * _DAY_HOURS
    seen = F.col("number").between(
        day_start - DAYS_BEFORE * _DAY_HOURS, day_start + (1 + DAYS_AFTER) * _DAY_HOURS - 1
    )
    return (
        counts.where(F.col("x") > 0)
        .groupBy("number")
        .agg(F.count("*"))
        .select("number", F.explode(days).alias("day"))
        .where(seen)
        .groupBy("day")
        .agg(F.min("number").alias("first"), F.max("number").alias("last"))
    )


def _finder(first: int, last: int) -> Callable[[pa.Table], pa.Table]:
    """What finds the anomalies of one twin in the hours from `first` on and before `last`."""

    def find(counts: pa.Table) -> pa.Table:
        twin, number, x = (counts[name].to_numpy() for name in ("twin", "number", "x"))
        inside = (number >= first - BASELINE) & (number < last)
        series = np.zeros(last - first + BASELINE, np.int64)
        series[number[inside] - (first - BASELINE)] = x[inside]
        place, med, mad = anomalies(series)
        columns = (first + place, np.full(len(place), twin[0]), series[BASELINE + place], med, mad)
        return pa.table(list(columns), schema=_FOUND)

    return find


def anomalies(series: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The hours of a series that are anomalies.

    Args:
        series: messages of each hour; the first BASELINE are only compared with.

    Returns:
        their places after these, and the median and the deviation of the hours before each.
    """
    x = series[BASELINE:]
    before = np.lib.stride_tricks.sliding_window_view(series, BASELINE)[:-1]
    # Most twins are silent most of the time: the median is 0 without a look at the values, and so
    # is the distance from it.
    busy = np.concatenate([[0], np.cumsum(series != 0)])
    busy = busy[BASELINE:-1] - busy[: -BASELINE - 1]
    med, mad = np.zeros_like(x), np.zeros_like(x)
    steady = np.flatnonzero(busy > BASELINE - MIDDLE)
    med[steady] = _middle(before[steady])
    off = np.abs(x - med)
    suspect = np.flatnonzero((off >= LEAST) & (busy > BASELINE - MIDDLE))
    mad[suspect] = _middle(np.abs(before[suspect] - med[suspect, np.newaxis]))
    place = np.flatnonzero((off >= LEAST) & (off * 10_000 >= 6 * 14_826 * np.maximum(mad, 1)))
    return place, med[place], mad[place]


def _middle(rows: np.ndarray) -> np.ndarray:
    return np.partition(rows, MIDDLE - 1, axis=1)[:, MIDDLE - 1]
