"""Merging: every row counts once for each reader that begins before, during or after it."""

from __future__ import annotations

import errno
import os
from datetime import date
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyarrow import parquet

from relay.analytics import event_files, merging
from relay.analytics.arrow_schema import EVENTS, OF_SEGMENTS, WRITING
from relay.analytics.compactor import Compactor
from relay.analytics.conversion import convert
from relay.analytics.lake import Lake, LakeError, fingerprint
from relay.analytics.merging import KEEP_S, QUIET_S, LaterVersionError, merge, remove_replaced
from relay.analytics.records import SBD, Kind
from relay.analytics.segments import Header
from relay.analytics.spark import schema
from tests.relay.analytics import segment_files as made

DAY = date(2026, 3, 1)
START = made.at("2026-03-01T05:00")
HOUR = (DAY, 5)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def add(lake: Lake, worker: str, uids: range, start_us: int = START) -> Path:
    """Add a file of one hour, as the compactor makes it."""
    header = Header("a.example", worker, START)
    records = [
        made.record(
            *(start_us + uid, uid),
            session=2 + uid % 2,
            remote=2 * (uid % 2),
            latency=uid if uid % 3 else -1,
            kind=uid % len(Kind),
        )
        for uid in uids
    ]
    names = made.sessions(f"{worker} left", "right") + made.remotes(f"{worker}.example")
    convert(lake, made.put(lake, made.content(header, records, names=names), header))
    (path,) = lake.hour(*HOUR).glob(f"a.example-{worker}-*") if start_us == START else [Path()]
    return path


def sorted_rows(lake: Lake) -> list[dict[str, object]]:
    rows = [
        {name: value for name, value in row.items() if name in OF_SEGMENTS.names}
        for row in made.rows(lake)
    ]
    return sorted(rows, key=lambda row: (row["uid"], row["src_session"]))


def test_merging_changes_neither_rows_nor_fingerprint(lake: Lake) -> None:
    for number, worker in enumerate("abc"):
        add(lake, worker, range(number * 10, number * 10 + 10))
    files, rows = lake.files(DAY, DAY), sorted_rows(lake)
    path = merge(lake, *HOUR)
    assert path is not None
    (file,) = after = lake.files(DAY, DAY)
    assert file.path == path
    assert sorted_rows(lake) == rows
    assert fingerprint(after) == fingerprint(files)
    assert parquet.read_schema(path).equals(EVENTS)
    told = duckdb.connect().execute(f"SELECT sum(uid), count(latency_us) FROM '{path}'").fetchone()
    assert told == (sum(range(30)), 20)
    assert merge(lake, *HOUR) is None


def test_files_of_the_first_version_are_of_rmb_among_newer_ones(lake: Lake) -> None:
    path = add(lake, "old", range(10))
    table = parquet.read_table(path).drop_columns(["protocol", "src_key", "dst_key"])
    table = table.replace_schema_metadata({schema.VERSION_KEY: "1"})
    parquet.write_table(table, path)
    header = Header("a.example", "new", START)
    packet = made.record(START, 0, src=0, dst=2, session=3, kind=Kind.ACCEPTED | SBD)
    segment = made.content(header, [packet], names=made.keys("bob", "alice"))
    convert(lake, made.put(lake, segment, header))
    merged = merge(lake, *HOUR)
    assert merged is not None
    rows = parquet.read_table(merged).to_pylist()
    keys = [(row["protocol"], row["src_twin"], row["src_key"], row["dst_key"]) for row in rows]
    assert sorted(keys, key=str) == [("rmb", 1, None, None)] * 10 + [("sbd", None, "alice", "bob")]


def test_who_listed_before_reads_all_for_a_day_and_who_lists_later_too(lake: Lake) -> None:
    add(lake, "a", range(10))
    add(lake, "b", range(10, 20))
    listed = lake.files(DAY, DAY)
    path = merge(lake, *HOUR)
    assert path is not None
    merged_s = path.stat().st_mtime
    assert remove_replaced(lake, *HOUR, merged_s + KEEP_S - 1) == 2
    assert sum(parquet.read_metadata(file.path).num_rows for file in listed) == 20
    assert made.uids(lake) == list(range(20))
    assert remove_replaced(lake, *HOUR, merged_s + KEEP_S) == 0
    assert [file.path for file in lake.present(*HOUR)] == [path]
    assert made.uids(lake) == list(range(20))


def test_late_rows_are_merged_with_what_was_merged_and_nothing_returns(lake: Lake) -> None:
    add(lake, "a", range(10))
    add(lake, "b", range(10, 20))
    first = merge(lake, *HOUR)
    assert first is not None
    add(lake, "late", range(20, 30))
    assert made.uids(lake) == list(range(30))
    second = merge(lake, *HOUR)
    assert second is not None
    assert [file.path for file in lake.files(DAY, DAY)] == [second]
    # The first merged file is removed first: the files that it replaced must not count again.
    first.unlink()
    assert made.uids(lake) == list(range(30))
    remove_replaced(lake, *HOUR, second.stat().st_mtime + KEEP_S)
    assert [file.path for file in lake.present(*HOUR)] == [second]
    assert made.uids(lake) == list(range(30))


def test_a_file_whose_segment_is_still_there_may_come_again_and_waits(lake: Lake) -> None:
    add(lake, "a", range(10))
    header = Header("a.example", "b", START)
    data = made.content(header, made.events(START, range(10, 20)))
    convert(lake, made.put(lake, data, header))
    segment = made.put(lake, data, header)  # the power failed before the removal was on disk
    assert merge(lake, *HOUR) is None
    convert(lake, segment)
    assert merge(lake, *HOUR) is not None
    assert made.uids(lake) == list(range(20))


def test_large_hours_are_copied_in_groups(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_files, "ROW_GROUP", 25)
    for number, worker in enumerate("abcde"):
        add(lake, worker, range(number * 10, number * 10 + 10))
    path = merge(lake, *HOUR)
    footer = parquet.read_metadata(path)
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [25, 5, 20]
    assert made.uids(lake) == list(range(50))


def test_files_of_an_older_schema_get_nulls(lake: Lake) -> None:
    path = add(lake, "a", range(4))
    old = parquet.read_table(path).drop_columns(["remote", "latency_us", "event_time"])
    plain = pa.schema([(field.name, _plain(field.type)) for field in old.schema])
    parquet.write_table(old.cast(plain), path)
    add(lake, "b", range(4, 8))
    merge(lake, *HOUR)
    rows = sorted_rows(lake)
    assert [row["uid"] for row in rows] == list(range(8))
    for name in ("remote", "latency_us", "event_time"):
        assert [row[name] for row in rows[:4]] == [None] * 4
    assert [row["src_session"] for row in rows[:2]] == ["a left", "right"]
    assert rows[5]["remote"] == "b.example"


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _break(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def _make_later(path: Path) -> None:
    later = {schema.VERSION_KEY: str(schema.VERSION + 1)}
    parquet.write_table(parquet.read_table(path).replace_schema_metadata(later), path)


@pytest.mark.parametrize(
    ("spoil", "error"), [(_break, LakeError), (_make_later, LaterVersionError)]
)
def test_what_cannot_be_read_is_named_and_all_stays(
    lake: Lake, spoil: object, error: type[Exception]
) -> None:
    add(lake, "a", range(10))
    path = add(lake, "b", range(10, 20))
    spoil(path)  # type: ignore[operator]
    before = sorted(lake.hour(*HOUR).iterdir())
    with pytest.raises(error, match=path.name):
        merge(lake, *HOUR)
    assert sorted(lake.hour(*HOUR).iterdir()) == before


def test_the_compactor_goes_on_with_other_hours_and_says_once_what_is_broken(lake: Lake) -> None:
    for worker in "ab":
        path = add(lake, worker, range(3))
    for worker in "cd":
        add(lake, worker, range(3), START + made.HOUR_US)
    _break(path)
    now_s = path.stat().st_mtime + 2 * QUIET_S
    compactor = Compactor(lake, keep_days=9999, segments_max_bytes=1 << 30, wall=lambda: now_s)
    work = compactor.merge()
    assert work.merged == 1
    (text,) = work.unreadable
    assert path.name in text
    assert compactor.merge().unreadable == []


def test_hours_that_still_get_files_wait(lake: Lake) -> None:
    path = add(lake, "a", range(3))
    quiet_s = path.stat().st_mtime + QUIET_S
    assert not merging.is_quiet(lake, *HOUR, quiet_s + 60)  # one file needs no merging
    os.utime(add(lake, "b", range(3)), (quiet_s - QUIET_S,) * 2)
    assert merging.is_quiet(lake, *HOUR, quiet_s)
    assert not merging.is_quiet(lake, *HOUR, quiet_s - 1)


def test_on_a_full_disk_nothing_changes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    add(lake, "a", range(10))
    add(lake, "b", range(10, 20))
    before = sorted(lake.hour(*HOUR).iterdir())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(event_files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        merge(lake, *HOUR)
    assert sorted(lake.hour(*HOUR).iterdir()) == before


def test_the_draft_of_a_merging_that_was_killed_goes_with_the_next(lake: Lake) -> None:
    add(lake, "a", range(3))
    add(lake, "b", range(3, 6))
    draft = lake.hour(*HOUR) / "_tmp-0123456789abcdef.merged"
    draft.touch()
    merge(lake, *HOUR)
    assert not draft.exists()


def test_a_table_of_the_lake_is_written_as_the_schema_says(lake: Lake) -> None:
    path = add(lake, "a", range(100))
    columns = parquet.read_metadata(path).row_group(0)
    found = {
        columns.column(n).path_in_schema: columns.column(n) for n in range(columns.num_columns)
    }
    encodings = WRITING["column_encoding"]
    assert found.keys() & encodings.keys() == encodings.keys() - {"answer_bytes"}
    for name in found.keys() & encodings.keys():
        assert encodings[name] in found[name].encodings
    assert all(each.compression == "ZSTD" for each in found.values())
    assert pa.types.is_dictionary(parquet.read_schema(path).field("kind").type)
