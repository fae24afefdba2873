"""The compactor as a whole: killed at any point, it resumes; on a full disk or with broken files it
records every loss.
"""

from __future__ import annotations

import collections
import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from relay.analytics import backlog, gaps, merging, retention
from relay.analytics.compactor import AnotherCompactorError, Compactor, alone
from relay.analytics.gaps import Why
from relay.analytics.lake import Lake
from relay.analytics.places import DRAFT
from relay.analytics.segments import (
    OPEN_SUFFIX,
    SUFFIX,
    Header,
    SegmentReader,
    Type,
    block,
    header_block,
)
from tests.relay.analytics import killed_compactor
from tests.relay.analytics import segment_files as made

START = made.at("2026-03-01T05:00")
NOW_S = START / 1_000_000 + 3 * 86_400
LONG_AGO_S = NOW_S - 2 * 86_400


def header(worker: str) -> Header:
    return Header("a.example", worker, START)


def compactor(lake: Lake, **options: int) -> Compactor:
    chosen = {"keep_days": 30, "segments_max_bytes": 1 << 30, **options}
    return Compactor(lake, wall=lambda: NOW_S, **chosen)


def add(lake: Lake, worker: str, start_us: int, uids: range, step_us: int = 1_000) -> None:
    """Bring events into the lake, in files that look old."""
    before = {file.path for file in lake.files(date.min, date.max)}
    data = made.content(header(worker), made.events(start_us, uids, step_us))
    made.put(lake, data, header(worker))
    compactor(lake).convert()
    for file in lake.files(date.min, date.max):
        if file.path not in before:
            os.utime(file.path, (LONG_AGO_S, LONG_AGO_S))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def busy(lake: Lake) -> Lake:
    """Return a lake in which every step of the compactor has something to do."""
    add(lake, "old", made.at("2026-01-01T00:00"), range(0, 10))
    add(lake, "left", START, range(10, 20))
    add(lake, "right", START + 1, range(20, 30))
    later = START + 2 * made.HOUR_US
    add(lake, "up", later, range(30, 40))
    add(lake, "down", later, range(40, 50))
    merged = merging.merge(lake, date(2026, 3, 1), 7)
    assert merged is not None
    os.utime(merged, (LONG_AGO_S, LONG_AGO_S))
    spread = made.events(START, range(50, 60), made.HOUR_US // 2)
    made.put(lake, made.content(header("closed"), spread), header("closed"))
    torn = made.content(header("torn"), made.events(START, range(60, 69)))
    made.put(lake, torn[:-1], header("torn"))
    dead = made.content(header("dead"), made.events(START, range(70, 79)))
    path, descriptor = made.put_open(lake, dead[:-1], header("dead"))
    os.close(descriptor)
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    for back in range(retention.LEADING):  # so that the current date is trusted
        day = datetime.fromtimestamp(NOW_S, UTC).date() - timedelta(days=back)
        (lake.events / f"date={day}").mkdir(exist_ok=True)
    return lake


OLD = set(range(10))
KEPT = {*range(10, 60), *range(60, 66), *range(70, 76)}


def in_segments(lake: Lake) -> set[int]:
    found = set()
    for path in lake.segments.iterdir():
        if path.name.endswith((SUFFIX, OPEN_SUFFIX)):
            for block in SegmentReader(path.read_bytes(), path).records():
                found |= {made.RECORD.unpack(row)[1] for row in _split(block)}
    return found


def _split(block: memoryview) -> list[memoryview]:
    size = made.RECORD.size
    return [block[start : start + size] for start in range(0, len(block), size)]


def assert_done(lake: Lake) -> None:
    assert made.uids(lake) == sorted(KEPT)
    assert [path.name for path in lake.root.rglob(f"{DRAFT}*")] == []
    assert [path.name for path in lake.segments.iterdir()] == [
        f"{header('torn').name}{SUFFIX}.unreadable"
    ]
    told = collections.Counter((gap.worker, gap.why) for gap in gaps.read(lake.root))
    assert told == {("dead", Why.KILLED): 1, ("torn", Why.TORN): 1}


def test_killed_at_any_step_it_goes_on_where_it_was(
    busy: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    copies = tmp_path / "copies"
    copies.mkdir()
    module = killed_compactor.__name__
    subprocess.run(
        [sys.executable, "-m", module, str(busy.root), str(copies), str(NOW_S)], check=True
    )
    killed = [Lake(copy) for copy in sorted(copies.iterdir())]
    assert len(killed) > 50
    assert_done(killed.pop())
    for lake in killed:
        rows = collections.Counter(made.uids(lake))
        assert set(rows.values()) == {1}, lake
        assert {*rows, *in_segments(lake)} >= KEPT, lake
        assert rows.keys() & OLD in (OLD, set()), lake
        killed_compactor.run(lake, NOW_S)
        assert_done(lake)
        shutil.rmtree(lake.root)


def test_a_live_recorder_keeps_its_segment(lake: Lake) -> None:
    data = made.content(header("live"), made.events(START, range(9)))
    path, descriptor = made.put_open(lake, data, header("live"))
    assert compactor(lake).convert().closed == 0
    assert path.exists()
    os.close(descriptor)
    assert compactor(lake).convert().closed == 1
    assert made.uids(lake) == list(range(9))


def test_the_gap_of_a_killed_recorder_ends_soon_after_its_last_write(lake: Lake) -> None:
    path, descriptor = made.put_open(lake, made.content(header("dead"), []), header("dead"))
    os.close(descriptor)
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    compactor(lake).convert()
    (gap,) = gaps.read(lake.root)
    assert (gap.why, gap.lost, gap.from_us) == (Why.KILLED, None, START)
    assert (gap.estimated, gap.at_most) == (None, None), "its header is of an earlier release"
    assert gap.to_us == int((LONG_AGO_S + backlog.SILENCE_S) * 1_000_000)


def test_too_many_segments_are_dropped_from_the_oldest_on_and_counted(lake: Lake) -> None:
    data = {name: made.content(header(name), made.events(START, range(9))) for name in "abc"}
    for age, name in enumerate(data):
        path = made.put(lake, data[name], header(name))
        os.utime(path, (LONG_AGO_S + age, LONG_AGO_S + age))
    assert backlog.keep_within(lake, 2 * len(data["a"])) == 1
    assert [path.name for path in backlog.closed(lake)] == [
        f"{header(name).name}{SUFFIX}" for name in "bc"
    ]
    (gap,) = gaps.read(lake.root)
    assert (gap.worker, gap.lost, gap.why) == ("a", 9, Why.DISK)
    assert backlog.keep_within(lake, 2 * len(data["a"])) == 0


def test_what_was_put_aside_is_dropped_without_another_gap(lake: Lake) -> None:
    path = made.put(lake, b"what is this", header("a"))
    backlog.put_aside(path)
    assert backlog.keep_within(lake, 1) == 1
    assert list(lake.segments.iterdir()) == []
    assert gaps.read(lake.root) == []


def test_a_segment_nobody_can_count_is_dropped_as_of_unknown_size(lake: Lake) -> None:
    made.put(lake, b"what is this", header("a"))
    assert backlog.keep_within(lake, 1) == 1
    (gap,) = gaps.read(lake.root)
    assert (gap.worker, gap.lost, gap.why) == ("a", None, Why.DISK)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_a_gap_has_the_names_of_the_header(lake: Lake, torn: bool, later: bool) -> None:
    """A gap has the names from the header, as the file's name replaces some characters."""
    owner = Header("relay-1.example.org", "host-0", START)
    first = header_block(owner)
    if later:
        content = {"version": 99, "relay": owner.relay, "worker": owner.worker}
        first = b"".join(block(Type.HEADER, json.dumps(content).encode(), START))
    path = made.put(lake, first + (b"torn" if torn else b""), owner)
    if later:
        compactor(lake).convert()
    else:
        backlog.keep_within(lake, 1)
    (gap,) = gaps.read(lake.root)
    assert (gap.relay, gap.worker, gap.from_us) == (owner.relay, owner.worker, START)
    assert not path.exists()


def test_a_gap_without_a_header_has_the_name_of_this_relay(lake: Lake, settings: Any) -> None:
    for domains, relay in (((), ""), (("xn--relay-1.example",), "xn--relay-1.example")):
        changed = dataclasses.replace(settings.RMB.relay, domains=domains)
        settings.RMB = dataclasses.replace(settings.RMB, relay=changed)
        made.put(lake, b"what is this", Header("xn--relay-1.example", "0", START))
        backlog.keep_within(lake, 1)
        (gap,) = gaps.read(lake.root)
        assert (gap.relay, gap.worker, gap.from_us) == (relay, "0", START)
        shutil.rmtree(lake.gaps)


def test_what_is_dropped_makes_room_to_tell_of_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made.put(lake, made.content(header("a"), made.events(START, range(9))), header("a"))
    write = gaps.write

    def full_while_it_is_there(root: Path, gap: gaps.Gap) -> Path:
        if path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(root, gap)

    monkeypatch.setattr(gaps, "write", full_while_it_is_there)
    assert backlog.keep_within(lake, 1) == 1
    (gap,) = gaps.read(lake.root)
    assert gap.lost == 9


def test_an_open_segment_that_is_none_is_put_aside(lake: Lake) -> None:
    _, descriptor = made.put_open(lake, b"what is this", header("a"))
    os.close(descriptor)
    assert compactor(lake).convert().closed == 1
    assert [path.suffix for path in lake.segments.iterdir()] == [".unreadable"]
    (gap,) = gaps.read(lake.root)
    assert (gap.relay, gap.worker, gap.why) == ("a.example", "a", Why.TORN)


def test_only_one_works_on_a_lake(lake: Lake) -> None:
    with alone(lake), pytest.raises(AnotherCompactorError, match="another compactor"), alone(lake):
        pass
    with alone(lake):
        pass
