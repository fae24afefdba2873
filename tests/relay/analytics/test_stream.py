"""Files of events as a stream: what it adds up is what a query of all files finds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession

from relay.analytics import merging
from relay.analytics.generator import Options, generate
from relay.analytics.lake import FRESH_GLOB, Lake
from relay.analytics.spark import stream

DAY = date(2026, 3, 1)
DAY_US = 1_772_323_200_000_000

Sums = dict[tuple[Any, ...], Counter[str]]


class Feed:
    """A lake that gets the files of a made-up day one after the other."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.made = folder / "made"
        generate(self.made, Options(DAY, days=1, rows=6_000, twins=200, relays=2, **options))
        self.waiting = sorted(self.made.rglob("*.parquet"))
        self.lake = Lake(folder / "lake")
        self.lake.events.mkdir(parents=True)

    def bring(self, count: int) -> None:
        """Put some files in, as the compactor does."""
        for file in self.waiting[:count]:
            target = self.lake.events.parent / file.relative_to(self.made)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
        del self.waiting[:count]

    def source(self, from_us: int = DAY_US) -> stream.Source:
        return stream.Source(self.lake.events, FRESH_GLOB, DAY, 1, from_us)


def _read(
    spark: SparkSession,
    source: stream.Source,
    checkpoint: Path,
    apply: Callable[[int, list[Row]], None],
) -> None:
    """All there is now."""
    query = stream.start(spark, source, checkpoint, apply, None)
    try:
        query.awaitTermination(100)
        assert not query.isActive
    finally:
        query.stop()


def _add(sums: Sums, rows: list[Row]) -> None:
    for row in rows:
        key = tuple(row[name] for name in stream.KEYS)
        sums.setdefault(key, Counter()).update({name: row[name] for name in stream.SUMS})


def _queried(lake: Lake) -> Sums:
    """The same, of the files that count, without Spark."""
    files = [str(file.path) for file in lake.files(DAY, DAY)]
    with duckdb.connect(config={"threads": "1", "memory_limit": "500MB"}) as connection:
        found = connection.execute(
            """
            SELECT epoch_us(event_time) // 60000000 * 60000000, relay, kind, reason,
                coalesce(remote, ''), count(*), coalesce(sum(size_bytes), 0),
                coalesce(sum(latency_us), 0),
                count(*) FILTER (kind = 'delivered' AND latency_us > 60000000)
            FROM read_parquet(?) GROUP BY ALL
            """,
            [files],
        ).fetchall()
    return {
        row[:5]: Counter(dict(zip(stream.SUMS, map(int, row[5:]), strict=True))) for row in found
    }


def test_what_comes_bit_by_bit_adds_up_to_all_of_it(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    sums: Sums = {}
    numbers: list[int] = []

    def apply(number: int, rows: list[Row]) -> None:
        numbers.append(number)
        _add(sums, rows)

    checkpoint = tmp_path / "checkpoint"
    _read(spark, feed.source(), checkpoint, apply)  # nothing there at all
    assert sums == {}
    for count in (1, 10):
        feed.bring(count)
        _read(spark, feed.source(), checkpoint, apply)
        assert sums == _queried(feed.lake)

    # Late rows of an hour that was read; then its files are merged, which brings nothing new.
    late = pq.read_table(feed.waiting[0])
    late = late.set_column(
        0,
        "event_time",
        pc.subtract(late["event_time"], pa.scalar(11 * 3600 * 10**6, pa.duration("us"))),
    )
    assert merging.merge(feed.lake, DAY, 0) is None
    pq.write_table(late, feed.lake.hour(DAY, 0) / "late-2.parquet")
    (feed.lake.hour(DAY, 0) / "_tmp-half-3").write_bytes(b"PAR1")
    _read(spark, feed.source(), checkpoint, apply)
    merged = merging.merge(feed.lake, DAY, 0)
    assert merged is not None and merged.exists()
    feed.bring(99)
    _read(spark, feed.source(), checkpoint, apply)
    assert sums == _queried(feed.lake)
    assert sum(each["late"] for each in sums.values()) > 0
    assert numbers == sorted(set(numbers))


def test_a_batch_not_noted_as_done_comes_again_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(tmp_path)
    seen: dict[int, list[Sums]] = {}

    def apply(number: int, rows: list[Row]) -> None:
        sums: Sums = {}
        _add(sums, rows)
        seen.setdefault(number, []).append(sums)

    def apply_and_die(number: int, rows: list[Row]) -> None:
        apply(number, rows)
        raise ConnectionError("dead before Spark knows")

    checkpoint = tmp_path / "checkpoint"
    feed.bring(5)
    with pytest.raises(StreamingQueryException, match="dead before Spark knows"):
        _read(spark, feed.source(), checkpoint, apply_and_die)
    whole = _queried(feed.lake)
    feed.bring(5)  # they are not part of it
    _read(spark, feed.source(), checkpoint, apply)
    assert list(seen) == [0, 1]
    assert seen[0] == [whole, whole]


def test_rows_before_the_beginning_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.bring(3)
    sums: Sums = {}
    begin_us = DAY_US + 2 * 3_600_000_000
    _read(spark, feed.source(begin_us), tmp_path / "c", lambda _, rows: _add(sums, rows))
    assert sums == {key: its for key, its in _queried(feed.lake).items() if key[0] >= begin_us}


def test_files_of_another_schema_are_read_as_far_as_they_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An older one lacks a column, a newer one has one more."""
    feed = Feed(tmp_path)
    feed.bring(1)
    (path,) = feed.lake.events.rglob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(
        table.drop_columns(["remote", "reason"]).append_column("colour", table["uid"]),
        feed.lake.hour(DAY, 1).with_name("hour=00") / "other-1.parquet",
    )
    sums: Sums = {}
    _read(spark, feed.source(), tmp_path / "c", lambda _, rows: _add(sums, rows))
    total: Counter[str] = sum(sums.values(), Counter())
    assert total["n"] == 2 * table.num_rows
    assert total["size_bytes"] == 2 * pc.sum(table["size_bytes"]).as_py()
