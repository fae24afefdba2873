"""The choice of files of the lake that hold each event exactly once."""

from __future__ import annotations

import json
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from relay.analytics.lake import (
    FRESH_GLOB,
    MERGED_SUFFIX,
    REPLACES_KEY,
    Lake,
    LakeError,
    fingerprint,
)

DAY = date(2026, 3, 1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def put(lake: Lake, name: str, *, day: date = DAY, hour: int = 5, rows: int = 1) -> Path:
    folder = lake.hour(day, hour)
    folder.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({"uid": list(range(rows))}), folder / name)
    return folder / name


def put_merged(lake: Lake, replaced: list[str]) -> Path:
    files = [file for file in lake.present(DAY, 5) if file.path.name in replaced]
    path = lake.hour(DAY, 5) / f"{fingerprint(files)}{MERGED_SUFFIX}"
    table = pa.table({"uid": [0]}).replace_schema_metadata({REPLACES_KEY: json.dumps(replaced)})
    parquet.write_table(table, path)
    return path


def names(lake: Lake, first: date = DAY, last: date = DAY) -> list[str]:
    return [file.path.name for file in lake.files(first, last)]


def test_an_empty_lake_has_no_days_and_no_files(lake: Lake) -> None:
    assert lake.days() == []
    assert lake.whole_span() is None
    assert lake.files(date.min, date.max) == []


def test_files_come_in_order_of_time_and_only_of_the_days_asked_for(lake: Lake) -> None:
    put(lake, "b-1.parquet", hour=23)
    put(lake, "a-1.parquet", hour=23)
    put(lake, "z-1.parquet", hour=0)
    put(lake, "early-1.parquet", day=date(2026, 2, 28))
    put(lake, "late-1.parquet", day=date(2026, 3, 2))
    assert names(lake) == ["z-1.parquet", "a-1.parquet", "b-1.parquet"]
    assert lake.whole_span() == (date(2026, 2, 28), date(2026, 3, 2))
    (file,) = lake.files(date(2026, 3, 2), date(2026, 3, 2))
    assert (file.date, file.hour) == (date(2026, 3, 2), 5)
    assert file.size_bytes == file.path.stat().st_size


def test_what_is_being_written_or_of_others_does_not_count(lake: Lake) -> None:
    put(lake, "a-1.parquet")
    put(lake, "_tmp-b-1")
    put(lake, "_tmp-b-1.parquet")
    put(lake, "_SUCCESS")
    (lake.events / "_bad").mkdir()
    (lake.events / "date=yesterday").mkdir()
    assert names(lake) == ["a-1.parquet"]
    assert lake.days() == [DAY]


def test_a_merged_file_takes_the_place_of_what_it_was_made_of(lake: Lake) -> None:
    put(lake, "a-1.parquet")
    put(lake, "b-1.parquet")
    before = fingerprint(lake.files(DAY, DAY))
    merged = put_merged(lake, ["a-1.parquet", "b-1.parquet"])
    assert names(lake) == [merged.name]
    assert fingerprint(lake.files(DAY, DAY)) == before
    put(lake, "late-1.parquet")
    assert names(lake) == [merged.name, "late-1.parquet"]
    assert fingerprint(lake.files(DAY, DAY)) != before


def test_the_fingerprint_tells_name_hour_and_size(lake: Lake) -> None:
    put(lake, "a-1.parquet")
    before = fingerprint(lake.files(DAY, DAY))
    put(lake, "a-1.parquet", rows=1000)
    grown = fingerprint(lake.files(DAY, DAY))
    lake.hour(DAY, 5).rename(lake.hour(DAY, 6))
    moved = fingerprint(lake.files(DAY, DAY))
    assert len({before, grown, moved}) == 3


def test_a_merged_file_that_cannot_be_read_is_named(lake: Lake) -> None:
    put(lake, "a-1.parquet")
    merged = put_merged(lake, ["a-1.parquet"])
    merged.write_bytes(b"PAR1")
    with pytest.raises(LakeError, match=merged.name):
        lake.files(DAY, DAY)


def test_a_stream_sees_what_is_added_and_nothing_merged() -> None:
    assert fnmatchcase("a.example-0-1760000000000000-2026030105.parquet", FRESH_GLOB)
    assert not fnmatchcase(f"{'0' * 32}{MERGED_SUFFIX}", FRESH_GLOB)


def test_folders_of_no_day_or_hour_are_not_read(tmp_path: Path) -> None:
    for name in ("date=2026-13-45/hour=00", "date=2026-11-02/hour=24", "date=2026-11-02/hour=07"):
        (tmp_path / "events" / name).mkdir(parents=True)
    lake = Lake(tmp_path)
    assert lake.days() == [date(2026, 11, 2)]
    assert lake.hours(date(2026, 11, 2)) == [7]
