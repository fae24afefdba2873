"""Files of events as a stream: its sums equal those of a query over all files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession

from relay.analytics import merging
from relay.analytics.spark import schema, stream
from tests.relay.analytics.stream_feed import DAY, DAY_US, Feed, Sums, queried


def _read(
    spark: SparkSession,
    source: stream.Source,
    checkpoint: Path,
    apply: Callable[[int, list[Row]], None],
) -> None:
    """Read everything that exists now."""
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


def test_what_comes_bit_by_bit_adds_up_to_all_of_it(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    sums: Sums = {}
    numbers: list[int] = []

    def apply(number: int, rows: list[Row]) -> None:
        numbers.append(number)
        _add(sums, rows)

    checkpoint = tmp_path / "checkpoint"
    _read(spark, feed.source(), checkpoint, apply)  # nothing exists yet
    assert sums == {}
    for count in (1, 10):
        feed.bring(count)
        _read(spark, feed.source(), checkpoint, apply)
        assert sums == queried(feed.lake)

    # Late rows of an hour that was read; then its files are merged, which adds no rows.
    late = pq.read_table(feed.waiting[0])
    late = late.set_column(
        0,
        "event_time",
        pc.subtract(late["event_time"], pa.scalar(11 * 3600 * 10**6, pa.duration("us"))),
    )
    assert merging.merge(feed.lake, DAY, 0) is None
    pq.write_table(late, feed.lake.hour(DAY, 0) / "late-2.parquet")
    protocol = late.schema.get_field_index("protocol")
    of_sbd = late.set_column(protocol, "protocol", pa.repeat("sbd", len(late)).dictionary_encode())
    pq.write_table(of_sbd, feed.lake.hour(DAY, 0) / "sbd-4.parquet")
    (feed.lake.hour(DAY, 0) / "_tmp-half-3").write_bytes(b"PAR1")
    _read(spark, feed.source(), checkpoint, apply)
    merged = merging.merge(feed.lake, DAY, 0)
    assert merged is not None and merged.exists()
    feed.bring(99)
    _read(spark, feed.source(), checkpoint, apply)
    assert sums == queried(feed.lake)
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
    whole = queried(feed.lake)
    feed.bring(5)  # not part of the batch
    _read(spark, feed.source(), checkpoint, apply)
    assert list(seen) == [0, 1]
    assert seen[0] == [whole, whole]


def test_the_files_of_each_batch_are_known(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch's files are known, although the tenth note of Spark's source repeats nine."""
    monkeypatch.setattr(stream, "FILES_PER_BATCH", 1)
    feed = Feed(tmp_path / "with space")
    feed.bring(11)
    checkpoint = tmp_path / "checkpoint"
    found: list[list[Path]] = []
    _read(
        spark,
        feed.source(),
        checkpoint,
        lambda number, _: found.append(stream.files_of(checkpoint, number)),
    )
    assert [len(files) for files in found] == [1] * 11
    assert {files[0] for files in found} == set(feed.lake.events.rglob("*.parquet"))


def test_rows_before_the_beginning_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.bring(3)
    sums: Sums = {}
    begin_us = DAY_US + 2 * 3_600_000_000
    _read(spark, feed.source(begin_us), tmp_path / "c", lambda _, rows: _add(sums, rows))
    assert sums == {key: its for key, its in queried(feed.lake).items() if key[0] >= begin_us}


def test_files_of_another_schema_are_read_as_far_as_they_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An older file, which lacks a column, and a newer one with an additional column are read."""
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
    counted = table.filter(pc.equal(table["protocol"], schema.RMB))
    assert total["n"] == 2 * counted.num_rows
    assert total["size_bytes"] == 2 * pc.sum(counted["size_bytes"]).as_py()
