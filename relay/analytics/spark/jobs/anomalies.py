"""Anomalies: hours in which a twin, or SBD, sent far more or less than in the week before.

The job counts the accepted messages of each twin in each hour, 0 where there are none. It looks at
twins that have an hour with at least 20 messages, and at all hours between the first and the last
accepted message of any twin. All keys of SBD together count as one twin, because most keys are new
with each connection and have no week before. The baseline of an hour is the 168 hours before it;
hours without a full baseline are skipped. An hour is an anomaly if

    |accepted - median| >= 20  and
    |accepted - median| * 10000 >= 6 * 14826 * max(deviation, 1)

that is, if its count is at least six standard deviations from the median, as the median absolute
deviation estimates them.

    period     day of `hour`
    hour       start of the hour
    twin       the sender; 0 for rows that name none, and for SBD
    accepted   messages from it that relays accepted in the hour
    median     median of this count over the 168 hours before: the 84th smallest
    deviation  median distance of these 168 counts from `median`: the 84th smallest
    protocol   rmb or sbd

To compute a day, the job also reads the 8 days before it and the day after it, and finds the first
and the last hour within these days. So the figures of a day do not depend on how many days are
computed together. A day on which no twin sent anything is covered if the next day has messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
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
        StructField("accepted", LongType()),
        StructField("median", LongType()),
        StructField("deviation", LongType()),
        StructField("protocol", StringType()),
    ]
)

BASELINE: Final = 168
MIDDLE: Final = BASELINE // 2
"""Rank of the median: the lower of the two middle values, as the count is even."""
LEAST: Final = 20

DAYS_BEFORE: Final = 8
DAYS_AFTER: Final = 1

_DAY_HOURS: Final = 24
_SBD: Final = -1
"""Number among the twins that stands for all keys of SBD."""
_FOUND: Final = pa.schema([(name, pa.int64()) for name in ("number", *SCHEMA.names[2:-1])])
_FOUND_SPARK: Final = ", ".join(f"{name} long" for name in _FOUND.names)


def transform(events: DataFrame, window: Window) -> DataFrame:
    """Return one row for each twin and hour of the window that is an anomaly.

    The events are read once and shuffled once, by twin; numpy counts the messages as well, for all
    twins of a partition at once. Counting in Spark first, to send only twins with possible
    anomalies to Python, took twice the time; a call for each twin would take even longer.
    """
    start_us = window.start_us - DAYS_BEFORE * measures.DAY_US
    end_us = window.end_us + DAYS_AFTER * measures.DAY_US
    first, last = window.start_us // measures.HOUR_US, window.end_us // measures.HOUR_US
    hour = measures.hour_number().cast("int").alias("number")
    find = _finder(first, last)
    twins = (
        measures.during(events, start_us, end_us, schema.ACCEPTED)
        .select(measures.twin("src_twin").alias("twin"), hour)
        .repartition("twin")
        .mapInArrow(find, _FOUND_SPARK)
    )
    # Counted in Spark, because all keys of SBD would be in one task.
    keys = (
        measures.during(events, start_us, end_us, schema.ACCEPTED, of=schema.SBD)
        .groupBy(hour)
        .agg(F.count("*").alias("n"))
        .select(F.lit(_SBD).cast("long").alias("twin"), "number", "n")
        .coalesce(1)
        .mapInArrow(find, _FOUND_SPARK)
    )
    return (
        _in_spans(twins.unionByName(keys), first // _DAY_HOURS, last // _DAY_HOURS - 1)
        .where(F.col("number").between(F.col("first") + BASELINE, F.col("last")))
        .select(
            measures.day_of_hour("number").alias("period"),
            measures.hour_start("number").alias("hour"),
            F.greatest("twin", F.lit(0)).alias("twin"),
            *SCHEMA.names[3:-1],
            F.when(F.col("twin") == _SBD, schema.SBD).otherwise(schema.RMB).alias("protocol"),
        )
    )


def _in_spans(found: DataFrame, first_day: int, last_day: int) -> DataFrame:
    """Add (first, last): first and last hour with messages, as far as the anomaly's day reads.

    Args:
        found: anomalies, and the hours that have messages as rows without a twin.
        first_day, last_day: days of the window.
    """
    day = F.expr(f"number div {_DAY_HOURS}")
    seeing = F.sequence(
        F.greatest(day - DAYS_AFTER, F.lit(first_day)), F.least(day + DAYS_BEFORE, F.lit(last_day))
    )
    hour = F.col("twin").isNull()
    same_day = Over.partitionBy("day")
    return (
        found.withColumn("day", F.explode(F.when(hour, seeing).otherwise(F.array(day))))
        .withColumn("first", F.min(F.when(hour, F.col("number"))).over(same_day))
        .withColumn("last", F.max(F.when(hour, F.col("number"))).over(same_day))
        .where(~hour)
    )


def _finder(
    first: int, last: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that finds the anomalies in the hours from `first` on and before `last`.

    The function takes (twin, number) for each message of some twins, or (twin, number, count), with
    all messages of each twin. It yields the anomalies, and every hour that has a message, without a
    twin.
    """

    def find(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        read = [[column.to_numpy() for column in batch.columns] for batch in batches]
        if not read:
            return
        twins, starts, numbers, counts = _count(*map(np.concatenate, zip(*read, strict=True)))
        hours = np.unique(numbers).astype(np.int64)
        yield _batch(hours, pa.nulls(len(hours), pa.int64()), hours, hours, hours)
        # An anomaly needs LEAST messages in its hour or before it, so few twins remain.
        for twin in np.flatnonzero(np.maximum.reduceat(counts, starts[:-1]) >= LEAST):
            mine = slice(starts[twin], starts[twin + 1])
            place = numbers[mine] - (first - BASELINE)
            inside = (place >= 0) & (place < last - first + BASELINE)
            series = np.zeros(last - first + BASELINE, np.int64)
            series[place[inside]] = counts[mine][inside]
            found, med, mad = anomalies(series)
            x = series[BASELINE + found]
            yield _batch(first + found, np.full(len(found), twins[twin]), x, med, mad)

    return find


def _batch(*columns: np.ndarray | pa.Array) -> pa.RecordBatch:
    return pa.record_batch([pa.array(column) for column in columns], schema=_FOUND)


def _count(
    twins: np.ndarray, numbers: np.ndarray, many: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Count how often each hour of each twin occurs.

    Args:
        twins, numbers: twin and hour of each row.
        many: messages of each row; None: one.

    Returns:
        the twins; the index of the first hour of each, followed by the number of hours; the
        hours, in order; the count of each hour.
    """
    order = np.lexsort((numbers, twins))
    twins, numbers = twins[order], numbers[order]
    new_twin = np.append(True, twins[1:] != twins[:-1])
    hours = np.flatnonzero(new_twin | np.append(True, numbers[1:] != numbers[:-1]))
    counts = (
        np.diff(hours, append=len(twins)) if many is None else np.add.reduceat(many[order], hours)
    )
    starts = np.flatnonzero(new_twin[hours])
    return twins[hours[starts]], np.append(starts, len(hours)), numbers[hours], counts


def anomalies(series: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the hours of a series that are anomalies.

    Args:
        series: messages of each hour; the first BASELINE hours are only compared with.

    Returns:
        their indices after these hours, and the median and the deviation of the hours before each.
    """
    x = series[BASELINE:]
    before = np.lib.stride_tricks.sliding_window_view(series, BASELINE)[:-1]
    # Most twins are silent most of the time: then the median and the deviation are 0 without a
    # computation.
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
