"""Few events, gathered into one file for each day, remain the same and give the same results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from relay.analytics import merging
from relay.analytics.gathering import gather
from relay.analytics.lake import Lake, LakeError
from relay.analytics.spark import schema
from relay.analytics.spark.catalogue import table
from tests.relay.analytics import rows
from tests.relay.analytics.comparing import events


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return days of all sorts, with a row without a kind and a burst after a week of silence."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    rows.lake(lake.events)
    start = rows.midnight(rows.FIRST)
    more = [
        rows.accepted(start, 1)._replace(kind=None),
        rows.accepted(start - 8 * rows.DAY, 2),
        *(rows.accepted(start + rows.HOUR, 100 + n, src=4711) for n in range(30)),
    ]
    rows.write(lake.events, more, name="more")
    return lake


@pytest.fixture(scope="module")
def gathered(lake: Lake) -> list[Path]:
    return gather(lake.files(date.min, date.max), lake.root / "gathered")


def test_a_day_has_one_file_and_a_row_group_one_kind(lake: Lake, gathered: list[Path]) -> None:
    assert [path.parent.name for path in gathered] == [f"date={day}" for day in lake.days()]
    assert len(lake.files(date.min, date.max)) > len(gathered)
    for path in gathered:
        with parquet.ParquetFile(path) as file:
            groups = [file.read_row_group(n, ["kind"]) for n in range(file.num_row_groups)]
        kinds = [group["kind"].unique().to_pylist() for group in groups]
        assert all(len(each) == 1 for each in kinds)


def test_what_is_there_is_not_written_again_and_what_changed_is(lake: Lake, tmp_path: Path) -> None:
    files = lake.files(date.min, date.max)
    before = {path: path.stat().st_mtime_ns for path in gather(files, tmp_path)}
    missing = next(file for file in files if file.date == rows.FIRST)
    after = gather([file for file in files if file != missing], tmp_path)
    (changed,) = (path for path in after if path not in before)
    assert changed.parent.name == f"date={rows.FIRST}"
    assert all(path.stat().st_mtime_ns == before[path] for path in after if path != changed)


def test_a_broken_file_is_named(lake: Lake, tmp_path: Path) -> None:
    rows.write(tmp_path / "events", rows.message(rows.midnight(rows.FIRST), 1))
    broken = Lake(tmp_path).files(date.min, date.max)
    broken[0].path.write_bytes(b"PAR1 no more PAR1")
    with pytest.raises(LakeError, match=broken[0].path.name):
        gather(broken, tmp_path / "gathered")
    assert not list((tmp_path / "gathered").rglob("*.parquet"))


def test_each_event_is_there_once(lake: Lake, gathered: list[Path]) -> None:
    def events_of(paths: Iterable[Path]) -> Counter[str]:
        read = (merging.read(path) for path in paths)
        return Counter(repr(row) for tables in read for each in tables for row in each.to_pylist())

    assert events_of(gathered) == events_of(file.path for file in lake.files(date.min, date.max))


TABLES = ("twin_hour", "traffic_matrix", "sessions", "anomalies", "usage", "audit", "graph_nodes")
"""One table for each way in which jobs read events."""


def test_results_are_the_same(spark: SparkSession, lake: Lake, gathered: list[Path]) -> None:
    reader = spark.read.schema(schema.READ).option("basePath", str(lake.root / "gathered"))
    gaps = {"gaps": spark.createDataFrame([], schema.GAPS)}
    for name in TABLES:
        more = gaps if name == "audit" else {}
        many, few = (
            Counter(map(repr, table(name).load().transform(read, rows.WINDOW, **more).collect()))
            for read in (events(spark, lake.events), reader.parquet(*map(str, gathered)))
        )
        assert many == few and many, name
