"""Segments become Parquet files by hour, with every field, and every lost row is reported."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyarrow import parquet

from relay.analytics import event_files, gaps
from relay.analytics.arrow_schema import OF_SEGMENTS, version_of
from relay.analytics.conversion import convert
from relay.analytics.gaps import Why
from relay.analytics.lake import Lake
from relay.analytics.records import SBD, Kind
from relay.analytics.segments import Header, Type, block, header_block
from relay.analytics.spark import schema
from tests.relay.analytics import segment_files as made

START = made.at("2026-03-01T05:00")
HEADER = Header("a.example", "worker-0", START)
RMB = {"protocol": "rmb", "src_key": None, "dst_key": None}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_every_field_of_a_record_comes_back(lake: Lake) -> None:
    names = made.sessions("phone") + made.remotes("b.example")
    first = made.record(START + 7, -(1 << 63), size=1 << 40, src=2**32 - 1, dst=2**32 - 2)
    second = made.record(
        *(START + 8, (1 << 63) - 1),
        latency=0,
        session=2,
        remote=2,
        kind=Kind.FEDERATED_OUT,
        reason="outbox_full",
    )
    path = made.put(lake, made.content(HEADER, [first, second], names=names), HEADER)
    done = convert(lake, path)
    assert (done.rows, done.hours, done.whole) == (2, [(date(2026, 3, 1), 5)], True)
    assert not path.exists()
    assert made.rows(lake) == [
        {
            "event_time": datetime(2026, 3, 1, 5, 0, 0, 7, tzinfo=UTC),
            "relay": "a.example",
            "kind": "accepted",
            "src_twin": 2**32 - 1,
            "dst_twin": 2**32 - 2,
            "src_session": "",
            "size_bytes": 1 << 40,
            "latency_us": None,
            "reason": "none",
            "remote": None,
            "uid": -(1 << 63),
            **RMB,
        },
        {
            "event_time": datetime(2026, 3, 1, 5, 0, 0, 8, tzinfo=UTC),
            "relay": "a.example",
            "kind": "federated_out",
            "src_twin": 1,
            "dst_twin": 2,
            "src_session": "phone",
            "size_bytes": 100,
            "latency_us": 0,
            "reason": "outbox_full",
            "remote": "b.example",
            "uid": (1 << 63) - 1,
            **RMB,
        },
    ]


@pytest.mark.parametrize(
    ("kind", "session", "dst", "rows"),
    [
        (Kind.ACCEPTED | SBD, 2, 2, 1),
        (Kind.ACCEPTED | SBD, 2, 3, 0),
        (Kind.ACCEPTED | SBD, 3, 2, 0),
        (Kind.ACCEPTED | SBD, 2, 2**32 - 1, 0),
        (Kind.ACCEPTED, 4, 2**32 - 1, 1),
        (Kind.ACCEPTED, 5, 1, 0),
        (Kind.ACCEPTED, 2**31, 1, 0),
    ],
)
def test_a_number_that_stands_for_nothing_is_refused(
    lake: Lake, kind: int, session: int, dst: int, rows: int
) -> None:
    names = made.sessions("a", "b", "c") + made.keys("alice")
    row = made.record(START, 0, src=0, dst=dst, session=session, kind=kind)
    done = convert(lake, made.put(lake, made.content(HEADER, [row], names=names), HEADER))
    assert done.rows == rows


def test_the_file_has_the_schema_and_its_version(lake: Lake) -> None:
    convert(lake, made.put(lake, made.content(HEADER, made.events(START, range(9))), HEADER))
    (file,) = lake.files(date.min, date.max)
    assert file.path.name == f"a.example-worker_0-{START}-2026030105.parquet"
    found = parquet.read_schema(file.path)
    assert found.equals(OF_SEGMENTS)
    assert found.names == schema.EVENTS.fieldNames()[: len(found.names)]
    assert version_of(found.metadata) == schema.VERSION
    assert gaps.read(lake.root) == []


def test_rows_lie_where_their_hour_is_whatever_the_clock_did(lake: Lake) -> None:
    times = [
        made.at("2026-03-01T05:59:59") + 999_999,
        made.at("2026-03-01T06:00"),
        made.at("2026-02-28T23:59:59"),  # the clock was set back
        made.at("2026-03-01T06:00") + 1,
        made.at("1969-12-31T23:30"),
    ]
    records = [made.record(time, uid) for uid, time in enumerate(times)]
    done = convert(lake, made.put(lake, made.content(HEADER, records), HEADER))
    assert done.hours == [
        (date(1969, 12, 31), 23),
        (date(2026, 2, 28), 23),
        (date(2026, 3, 1), 5),
        (date(2026, 3, 1), 6),
    ]
    of_hour = {
        (file.date, file.hour): parquet.read_table(file.path)["uid"].to_pylist()
        for file in lake.files(date.min, date.max)
    }
    assert of_hour[date(2026, 3, 1), 6] == [1, 3]
    assert sorted(uid for each in of_hour.values() for uid in each) == list(range(5))


def test_a_segment_without_an_event_makes_no_file(lake: Lake) -> None:
    path = made.put(lake, header_block(HEADER) + b"".join(block(Type.MARK, b"", START)), HEADER)
    assert convert(lake, path).hours == []
    assert not path.exists()
    assert lake.days() == []


def test_a_torn_segment_gives_what_is_before_and_says_so(lake: Lake) -> None:
    data = made.content(HEADER, made.events(START, range(9)))
    path = made.put(lake, data[:-10], HEADER)
    done = convert(lake, path)
    assert (done.rows, done.whole) == (6, False)
    assert made.uids(lake) == list(range(6))
    (gap,) = gaps.read(lake.root)
    assert (gap.relay, gap.worker, gap.why) == ("a.example", "worker-0", Why.TORN)
    assert gap.from_us == START + 1
    assert gap.estimated == gap.at_most == 3
    assert [each.name for each in lake.segments.iterdir()] == [f"{HEADER.name}.seg.unreadable"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"what is this",
        made.content(HEADER, [made.record(START, 1, kind=len(Kind))]),
        made.content(HEADER, [made.record(START, 1, session=2)]),
        made.content(HEADER, [made.record((1 << 63) - 1, 1)]),
        b"".join(block(Type.HEADER, b'{"version": 2, "record_bytes": 48}', START)),
    ],
    ids=["empty", "foreign", "unknown kind", "unknown session", "no such year", "other version"],
)
def test_what_cannot_be_read_is_kept_and_told(
    lake: Lake, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = made.put(lake, data, HEADER)
    assert not convert(lake, path).whole
    assert [each.name for each in lake.segments.iterdir()] == [f"{HEADER.name}.seg.unreadable"]
    assert lake.files(date.min, date.max) == []
    (gap,) = gaps.read(lake.root)
    assert (gap.relay, gap.from_us, gap.lost, gap.why) == ("a.example", START, None, Why.TORN)
    assert str(path) in caplog.text


def test_a_segment_begun_anew_replaces_what_was_written(lake: Lake) -> None:
    data = made.content(HEADER, made.events(START, range(9), step_us=made.HOUR_US // 4))
    convert(lake, made.put(lake, data, HEADER))
    before = [(file.path, file.path.read_bytes()) for file in lake.files(date.min, date.max)]
    convert(lake, made.put(lake, data, HEADER))
    assert [
        (file.path, file.path.read_bytes()) for file in lake.files(date.min, date.max)
    ] == before
    assert len(before) == 3


@contextlib.contextmanager
def room_for(size_bytes: int) -> Iterator[None]:
    """Limit the size of files: the kernel refuses to write beyond it, in the middle of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextlib.contextmanager
def full_at_the_sync() -> Iterator[None]:
    """Let fsync fail: the disk has no room for what it took into its cache."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_files.os, "fsync", full)
        yield


@pytest.mark.parametrize(
    "full",
    [room_for(4), room_for(8_000), room_for(60_000), full_at_the_sync()],
    ids=["at the first bytes", "in a row group", "near the end", "at the sync"],
)
def test_on_a_full_disk_the_segment_stays_and_no_draft(
    lake: Lake, full: contextlib.AbstractContextManager[None]
) -> None:
    uids = random.Random(8).sample(range(1 << 62), 7_000)
    path = made.put(lake, made.content(HEADER, made.events(START, uids), each=1_000), HEADER)
    with full, pytest.raises(OSError, match=r"No space left|File too large"):
        convert(lake, path)
    assert path.exists()
    assert [each for each in lake.events.rglob("*") if each.is_file()] == []
    convert(lake, path)
    assert made.uids(lake) == sorted(uids)
    (file,) = lake.files(date.min, date.max)
    assert file.size_bytes > 60_000
