"""The commands find, name and set aside files that cannot be read, and report them."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import resource
import shutil
import threading
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from django.core.management import CommandError, call_command
from pyarrow import parquet

from relay.analytics import checking, footers, gaps, places
from relay.analytics.compactor import alone
from relay.analytics.conversion import convert
from relay.analytics.errors import AnalyticsError
from relay.analytics.gaps import Why
from relay.analytics.lake import Lake, replaced_by
from relay.analytics.merging import merge
from relay.analytics.places import Places
from relay.analytics.segments import Header
from relay.analytics.spark import schema
from tests.relay.analytics import segment_files as made
from tests.support.waiting import wait_until

DAY = date(2026, 3, 1)
START = made.at("2026-03-01T05:00")
HOUR = (DAY, 5)
BESIDE = 100
"""Offset of a byte of a data page, in a file of a few rows."""
NOTHING = {"gaps": 0, "known": 0, "estimated": 0, "at_most": 0, "unknown": 0}


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
    assert good is not None and bad is not None
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
    assert report["gaps"] == report["lost_in_gaps"]["unknown"] == 1
    (gap,) = gaps.read(lake.root)
    assert (gap.relay, gap.worker, gap.lost, gap.why) == ("a.example", "b", None, Why.DISK)
    assert (gap.from_us, gap.to_us) == (START, START + made.HOUR_US - 1)
    assert made.uids(lake) == list(range(9))


def test_what_was_removed_since_it_was_listed_is_not_wrong(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncate(add(lake, "a", range(9)))
    add(lake, "b", range(9))
    listed = list(checking.files(lake))
    shutil.rmtree(lake.events / f"date={DAY}")
    assert [checking.check(file, whole=whole) for file in listed for whole in (False, True)] == (
        [None] * 4
    )
    monkeypatch.setattr(checking, "files", lambda lake: iter(listed))
    assert command("check", "--repair") == {
        **{"files": 0, "rows": 0, "wrong": [], "gaps": 0, "lost_in_gaps": NOTHING},
        **{"segments_waiting": 0, "segments_unreadable": 0},
    }


@pytest.mark.parametrize("meanwhile", ["removed", "replaced", "merged and removed"])
def test_what_changes_while_it_is_put_aside_leaves_no_gap(lake: Lake, meanwhile: str) -> None:
    path = add(lake, "a", range(9))
    whole = path.read_bytes()
    truncate(path)
    (file,) = checking.files(lake)
    if meanwhile == "replaced":
        path.write_bytes(whole)
    elif meanwhile == "removed":
        path.unlink()
    else:
        shutil.rmtree(path.parent)
    assert checking.repair(lake, file, whole=False) is None
    assert gaps.read(lake.root) == []
    assert not lake.bad.exists()


def test_what_is_put_aside_waits_for_the_compactor_s_step(lake: Lake) -> None:
    """A repair waits for the end of the compactor's step, not for the end of the compactor.

    A relay runs a compactor as long as it runs itself.
    """
    path = add(lake, "a", range(9))
    truncate(path)
    done = threading.Event()

    def repair() -> None:
        command("check", "--repair")
        done.set()

    with alone(lake):
        with lake.changing():
            waiting = threading.Thread(target=repair)
            waiting.start()
            wait_until(lambda: waits_for_a_lock(lake))
            assert path.exists() and not done.is_set()
        assert done.wait(10)
    waiting.join()
    assert not path.exists()


def waits_for_a_lock(lake: Lake) -> bool:
    """Check in the kernel's list of locks whether anything waits for the lake's lock."""
    number = str((lake.root / "events.lock").stat().st_ino)
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f":{number} " in line for line in lines)


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """Let the system refuse to open any further file for this process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit[1]))
    held = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)


@pytest.mark.parametrize("whole", [False, True])
def test_what_the_system_refuses_to_read_is_not_broken(lake: Lake, whole: bool) -> None:
    add(lake, "a", range(9))
    add(lake, "b", range(9))
    merged = merge(lake, *HOUR)
    assert merged is not None
    listed = list(checking.files(lake))
    with no_more_files():
        found = [checking.check(file, whole=whole) for file in listed]
        with pytest.raises(AnalyticsError) as refused:
            footers.assert_readable(listed[0].path)
        with pytest.raises(AnalyticsError) as unlisted:
            replaced_by(merged)
    assert len(found) == 3
    for each in found:
        assert each is not None and not each.broken
        assert "Too many open files" in each.wrong
    assert "--repair" not in f"{refused.value} {unlisted.value}"


def test_a_file_that_cannot_be_moved_is_told(lake: Lake) -> None:
    path = add(lake, "a", range(9))
    truncate(path)
    lake.bad.touch()
    with pytest.raises(CommandError, match="1 of 1 files cannot be read"):
        call_command("rmb_analytics", "check", "--repair")
    assert path.exists()


def test_the_gap_has_the_relay_s_own_name(lake: Lake, settings: Any) -> None:
    header = Header("relay-1.example.org", "host-0", START)
    convert(lake, made.put(lake, made.content(header, made.events(START, range(9))), header))
    (path,) = lake.hour(*HOUR).iterdir()
    good = path.read_bytes()
    rot(path)
    command("check", "--rows", "--repair")  # its footer is still readable
    (gap,) = gaps.read(lake.root)
    assert (gap.relay, gap.estimated, gap.at_most) == (header.relay, 9, 9)
    relay = dataclasses.replace(settings.RMB.relay, domains=(header.relay,))
    for domains, name in (((), ""), (relay.domains, header.relay)):
        changed = dataclasses.replace(relay, domains=domains)
        settings.RMB = dataclasses.replace(settings.RMB, relay=changed)
        shutil.rmtree(lake.gaps)
        path.write_bytes(good)
        truncate(path)
        command("check", "--repair")
        (gap,) = gaps.read(lake.root)
        assert gap.relay == name


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
    assert "gaps of recorders: 1, which lost an unknown number of events" in text
    assert "0 events of 0 segments" in text
