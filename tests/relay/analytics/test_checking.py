"""Files that cannot be read are found, named and put aside, and the commands say so."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from django.core.management import CommandError, call_command
from pyarrow import parquet

from relay.analytics import checking, gaps, places
from relay.analytics.compactor import alone
from relay.analytics.conversion import convert
from relay.analytics.gaps import Why
from relay.analytics.lake import Lake
from relay.analytics.merging import merge
from relay.analytics.places import Places
from relay.analytics.segments import Header
from relay.analytics.spark import schema
from tests.relay.analytics import segment_files as made

DAY = date(2026, 3, 1)
START = made.at("2026-03-01T05:00")
HOUR = (DAY, 5)
BESIDE = 100
"""A byte of a page, in a file of a few rows."""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(places, "configured", lambda: Places(tmp_path))
    return Lake(tmp_path)


def add(lake: Lake, worker: str, uids: range) -> Path:
    header = Header("a.example", worker, START)
    convert(lake, made.put(lake, made.content(header, made.events(START, uids)), header))
    (path,) = lake.hour(*HOUR).glob(f"a.example-{worker}-*")
    return path


def command(*arguments: str) -> Any:
    out = io.StringIO()
    call_command("rmb_analytics", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def rot(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[BESIDE] ^= 1
    path.write_bytes(data)


def retype(path: Path) -> None:
    table = parquet.read_table(path)
    place = table.column_names.index("uid")
    parquet.write_table(table.set_column(place, "uid", table["uid"].cast(pa.int32())), path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("spoil", "whole", "why"),
    [
        (truncate, False, "magic bytes"),
        (empty, False, "file size is 0 bytes"),
        (retype, False, "uid is int32, not int64"),
        (rot, True, "CRC checksum"),
    ],
)
def test_what_is_broken_is_named_with_its_reason(
    lake: Lake, spoil: Callable[[Path], None], whole: bool, why: str
) -> None:
    add(lake, "a", range(9))
    spoil(add(lake, "b", range(9)))
    good, bad = (checking.check(file, whole=whole) for file in checking.files(lake))
    assert (good.rows, good.wrong, good.broken) == (9, "", False)
    assert why in bad.wrong
    assert bad.broken


def test_a_file_of_a_later_release_is_not_broken(lake: Lake) -> None:
    path = add(lake, "a", range(9))
    later = {schema.VERSION_KEY: str(schema.VERSION + 1)}
    parquet.write_table(parquet.read_table(path).replace_schema_metadata(later), path)
    with pytest.raises(CommandError, match="1 of 1 files cannot be read"):
        command("check", "--repair")
    assert path.exists()


def test_a_broken_file_put_aside_leaves_a_gap_of_its_hour(lake: Lake) -> None:
    add(lake, "a", range(9))
    truncate(add(lake, "b", range(9, 18)))
    with pytest.raises(CommandError, match="1 of 2 files cannot be read"):
        command("check")
    report = command("check", "--repair")
    assert (report["files"], report["rows"]) == (2, 9)
    (found,) = report["wrong"]
    assert Path(found["moved"]).parent == lake.bad
    assert Path(found["moved"]).exists()
    report = command("check", "--rows")
    assert (report["files"], report["rows"], report["wrong"]) == (1, 9, [])
    assert report["gaps"] == 1
    (gap,) = gaps.read(lake.root)
    assert (gap.relay, gap.worker, gap.lost, gap.why) == ("a.example", "b", None, Why.DISK)
    assert (gap.from_us, gap.to_us) == (START, START + made.HOUR_US - 1)
    assert made.uids(lake) == list(range(9))


def test_a_broken_merged_file_gives_way_to_what_it_was_made_of(lake: Lake) -> None:
    add(lake, "a", range(9))
    add(lake, "b", range(9, 18))
    merged = merge(lake, *HOUR)
    assert merged is not None
    truncate(merged)
    command("check", "--repair")
    assert made.uids(lake) == list(range(18))
    (gap,) = gaps.read(lake.root)
    assert (gap.relay, gap.from_us) == ("", START)


def test_a_broken_file_that_was_merged_before_is_no_loss(lake: Lake) -> None:
    path = add(lake, "a", range(9))
    add(lake, "b", range(9, 18))
    merge(lake, *HOUR)
    truncate(path)
    command("check", "--repair")
    assert made.uids(lake) == list(range(18))
    assert gaps.read(lake.root) == []


def test_compact_does_all_a_compactor_does_and_tells(lake: Lake) -> None:
    for worker in "ab":
        header = Header("a.example", worker, START)
        made.put(lake, made.content(header, made.events(START, range(9))), header)
    made.put(lake, b"what is this", Header("a.example", "c", START))
    assert command("check")["segments_waiting"] == 3
    report = command("compact")
    assert (report["segments"], report["rows"], report["wrong"]) == (3, 18, [])
    report = command("check")
    assert (report["rows"], report["segments_waiting"], report["segments_unreadable"]) == (18, 0, 1)
    with alone(lake), pytest.raises(CommandError, match="another compactor is at work"):
        command("compact")


def test_the_texts_name_file_and_reason(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    path = add(lake, "a", range(9))
    truncate(path)
    call_command("rmb_analytics", "check", "--repair")
    call_command("rmb_analytics", "compact")
    text = capsys.readouterr().out
    assert f"{path}: Parquet magic bytes" in text
    assert f"moved to {lake.bad}" in text
    assert "1 files, 0 events" in text
    assert "times in which events were lost, or may have been: 1" in text
    assert "0 events of 0 segments" in text
