"""New files of events as a stream: what each brings, added up by the minute.

Spark lists the folders of a span of days again and again, takes the files it has not seen, notes
them in the checkpoint, and hands their sums to `apply` with the number of the batch. Nothing else
is kept in Spark: sums can be added in any order, so a late row needs no state and is never thrown
away. A batch that was not noted as done comes again with the same number and the same files.
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
"""After a long pause; what came in a second is far less."""

LATE_US: Final = 60_000_000
"""As the audit has it."""

MINUTE_US: Final = 60_000_000

KEYS: Final = ("minute_us", "relay", "kind", "reason", "remote")
SUMS: Final = ("n", "size_bytes", "latency_us", "late")


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Which files.

    Attributes:
        events: folder of the events.
        names: pattern of the files' names, so that none is taken whose rows were in others.
        first_day: of the folders.
        days: how many from it on; a listing takes time for each.
        from_us: rows before this moment are left out.
    """

    events: Path
    names: str
    first_day: date
    days: int
    from_us: int

    @property
    def pattern(self) -> str:
        """Of the folders."""
        days = (self.first_day + timedelta(n) for n in range(self.days))
        return f"{self.events}/date={{{','.join(day.isoformat() for day in days)}}}"


def sums(events: DataFrame, from_us: int) -> DataFrame:
    """Rows of `KEYS`, `SUMS` and `newest_us`, the latest event of each; SBD is left out.

    minute_us     begin of the minute of event_time
    remote        "" where there is none
    n             events
    size_bytes    of them
    latency_us    sum over those that have one
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
    """Begin, or go on where the checkpoint ends.

    Args:
        session: of Spark.
        source: which files; the same ones as when the checkpoint was begun.
        checkpoint: a folder, made if there is none.
        apply: called in a thread of its own with the number of each batch and its sums. It is
            called again after an error or a crash.
        every_s: how often to look for files; None: take what is there and end.
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
    """The files of a batch that is under way, as Spark has noted them before it began."""
    notes = checkpoint / "sources" / "0"
    found = []
    for note in range(_noted(checkpoint, number - 1) + 1, _noted(checkpoint, number) + 1):
        path = notes / str(note)
        if not path.exists():  # each tenth holds those before it as well
            path = notes / f"{note}.compact"
        for line in path.read_text().splitlines()[1:]:
            told = json.loads(line)
            if told["batchId"] == note:
                found.append(Path(unquote(urlsplit(told["path"]).path)))
    return found


def _noted(checkpoint: Path, number: int) -> int:
    """Up to which of the source's notes a batch goes; -1 before the first one."""
    if number < 0:
        return -1
    told = (checkpoint / "offsets" / str(number)).read_text().splitlines()
    return int(json.loads(told[-1])["logOffset"])


def moment_us(when: datetime) -> int:
    """Microseconds since 1970."""
    return round(when.timestamp() * 1_000_000)
