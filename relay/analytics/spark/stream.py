"""New files of events as a stream, with the sums of each batch by minute.

Spark lists the folders of a span of days repeatedly, takes the files it has not seen, records them
in the checkpoint, and passes their sums to `apply` with the number of the batch. Spark keeps no
other state: sums can be added in any order, so a late row needs no state and is never discarded. A
batch that was not recorded as done is repeated with the same number and the same files.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from relay.analytics.spark import measures, schema

FILES_PER_BATCH: Final = 500
"""Maximum files of a batch, reached after a long pause; each second brings far fewer."""

LATE_US: Final = 60_000_000
"""Latency above which a delivery is late, in microseconds, as in the audit."""

MINUTE_US: Final = 60_000_000

KEYS: Final = ("minute_us", "relay", "kind", "reason", "remote")
SUMS: Final = ("n", "size_bytes", "latency_us", "late")


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Files that the stream reads.

    Attributes:
        events: folder of the events.
        names: pattern of the names of files whose rows are in no other file of the stream.
        first_day: first day of the folders.
        days: number of days from it on; each one takes time in every listing.
        from_us: rows before this time are skipped.
    """

    events: Path
    names: str
    first_day: date
    days: int
    from_us: int

    @property
    def pattern(self) -> str:
        """Pattern of the folders."""
        days = (self.first_day + timedelta(n) for n in range(self.days))
        return f"{self.events}/date={{{','.join(day.isoformat() for day in days)}}}"


def sums(events: DataFrame, from_us: int) -> DataFrame:
    """Return rows of `KEYS`, `SUMS` and `newest_us`, the time of the latest event; SBD is skipped.

    minute_us     start of the minute of event_time
    remote        the partner relay; "" without one
    n             number of events
    size_bytes    sum of their sizes
    latency_us    sum of the latencies of the events that have one
    late          delivered events whose latency is above a minute
    """
    time_us = f.unix_micros("event_time")
    late = (f.col("kind") == schema.DELIVERED) & (f.col("latency_us") > LATE_US)
    return (
        events.where((time_us >= from_us) & (measures.protocol() == schema.RMB))
        .groupBy(
            (time_us - f.pmod(time_us, f.lit(MINUTE_US))).alias("minute_us"),
            "relay",
            "kind",
            f.coalesce("reason", f.lit(schema.NONE)).alias("reason"),
            f.coalesce("remote", f.lit("")).alias("remote"),
        )
        .agg(
            f.count("*").alias("n"),
            f.coalesce(f.sum("size_bytes"), f.lit(0)).alias("size_bytes"),
            f.coalesce(f.sum("latency_us"), f.lit(0)).alias("latency_us"),
            f.count_if(late).alias("late"),
            f.max(time_us).alias("newest_us"),
        )
    )


def start(
    session: SparkSession,
    source: Source,
    checkpoint: Path,
    apply: Callable[[int, list[Row]], None],
    every_s: float | None,
) -> StreamingQuery:
    """Start the stream, or continue where the checkpoint ends.

    Args:
        session: session of Spark.
        source: files to read; the same as when the checkpoint was created.
        checkpoint: folder of the checkpoint; created if it does not exist.
        apply: called in another thread with the number of each batch and its sums; called again
            after an error or a crash.
        every_s: seconds between two searches for files; None: read the existing files and end.
    """
    events = (
        session.readStream.schema(schema.READ)
        .option("basePath", str(source.events))
        .option("pathGlobFilter", source.names)
        .option("maxFilesPerTrigger", FILES_PER_BATCH)
        .parquet(source.pattern)
    )

    def batch(rows: DataFrame, number: int) -> None:
        apply(number, sums(rows, source.from_us).collect())

    writer = events.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds").start()


def files_of(checkpoint: Path, number: int) -> list[Path]:
    """Return the files of a running batch, which Spark recorded before the batch began."""
    notes = checkpoint / "sources" / "0"
    found = []
    for note in range(_noted(checkpoint, number - 1) + 1, _noted(checkpoint, number) + 1):
        path = notes / str(note)
        if not path.exists():  # every tenth is compacted with those before it
            path = notes / f"{note}.compact"
        for line in path.read_text().splitlines()[1:]:
            told = json.loads(line)
            if told["batchId"] == note:
                found.append(Path(unquote(urlsplit(told["path"]).path)))
    return found


def _noted(checkpoint: Path, number: int) -> int:
    """Return the last record of the source that belongs to a batch; -1 before the first batch."""
    if number < 0:
        return -1
    told = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    return int(json.loads(told[-1])["logOffset"])


def moment_us(when: datetime) -> int:
    """Return a time in microseconds since 1970."""
    return round(when.timestamp() * 1_000_000)
