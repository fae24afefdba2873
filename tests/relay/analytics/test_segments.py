"""Segments: records read back as written, and a torn file is cut after its last good block."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from relay.analytics import gaps
from relay.analytics.records import (
    FIRST_NAMES,
    KINDS,
    NO_LATENCY,
    REASON_CODE,
    REASONS,
    RECORD,
    RECORD_BYTES,
    Kind,
)
from relay.analytics.segments import (
    OPEN_SUFFIX,
    Header,
    SegmentError,
    SegmentReader,
    Type,
    block,
    header_block,
    lock,
    names_block,
    recover,
)
from relay.analytics.spark import schema
from tests.relay.analytics import segment_files as made
from tests.support.recorded import rows_of

HEADER = Header("a.example", "worker-0", 10)


def _record(at_us: int, session: int = 0) -> bytes:
    delivered = REASON_CODE["none"]
    return RECORD.pack(
        at_us, -(1 << 63), 1 << 40, NO_LATENCY, 2**32 - 1, 7, session, 0, Kind.DELIVERED, delivered
    )


def _records_block(*records: bytes, until_us: int = 0) -> bytes:
    return b"".join(block(Type.RECORDS, b"".join(records), until_us))


def _segment() -> tuple[bytes, list[int]]:
    """Return the content of a file, and the offsets at which its blocks end."""
    parts = [
        header_block(HEADER),
        _records_block(_record(1), until_us=11),
        names_block("sessions", 2, ["left", "right"], 12),
        _records_block(_record(2, 2), _record(3, 3), until_us=13),
        b"".join(block(Type.MARK, b"", 20)),
    ]
    ends = [sum(map(len, parts[: index + 1])) for index in range(len(parts))]
    return b"".join(parts), ends


def test_comes_back_as_it_was_written() -> None:
    data, _ = _segment()
    reader = SegmentReader(data, "x.seg")
    assert reader.header == HEADER
    rows = [RECORD.unpack_from(part, at) for part in reader.records()
            for at in range(0, len(part), RECORD_BYTES)]  # fmt: skip
    assert [row[0] for row in rows] == [1, 2, 3]
    assert rows[0] == (1, -(1 << 63), 1 << 40, -1, 2**32 - 1, 7, 0, 0, 1, 0)
    assert [reader.names["sessions"][row[6]] for row in rows] == ["", "left", "right"]
    assert reader.names["remotes"] == list(FIRST_NAMES)
    assert (reader.until_us, reader.torn_bytes) == (20, 0)


def test_a_file_cut_anywhere_gives_all_blocks_before() -> None:
    data, ends = _segment()
    for length in range(ends[0], len(data)):
        reader = SegmentReader(data[:length], "x.seg")
        rows = sum(len(part) for part in reader.records()) // RECORD_BYTES
        good = max(end for end in ends if end <= length)
        assert (reader.good_bytes, reader.torn_bytes) == (good, length - good)
        assert rows == (0 if good < ends[1] else 1 if good < ends[3] else 3)
    for length in range(ends[0]):
        with pytest.raises(SegmentError, match=r"x\.seg: does not begin"):
            SegmentReader(data[:length], "x.seg")


def test_a_changed_byte_ends_what_is_believed() -> None:
    data, ends = _segment()
    chance = random.Random(8)
    for _ in range(200):
        at = chance.randrange(ends[0], len(data))
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        reader = SegmentReader(bytes(changed), "x.seg")
        for _ in reader.records():
            pass
        assert reader.good_bytes == max(end for end in ends if end <= at)
        assert reader.torn_bytes == len(data) - reader.good_bytes


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"version": 2}', "is of version 2, this release reads 1"),
        (b'{"version": 1, "record_bytes": 64}', "records of 64 bytes, not of 48"),
        (b'{"version": 1, "record_bytes": 48}', "its header is incomplete"),
        (b"[]", "not a JSON object"),
        (b"{", "not JSON"),
    ],
)
def test_another_layout_is_refused_by_name(content: bytes, complaint: str) -> None:
    with pytest.raises(SegmentError, match=rf"^a\.seg: .*{complaint}"):
        SegmentReader(b"".join(block(Type.HEADER, content, 0)), "a.seg")


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        (b"".join(block(Type.RECORDS, bytes(47), 0)), "does not consist of whole records"),
        (b"".join(block(9, b"", 0)), "unknown type, 9"),  # type: ignore[arg-type]
        (names_block("colours", 2, ["red"], 0), "unknown table, colours"),
        (names_block("sessions", 5, ["red"], 0), "sessions do not continue"),
        (names_block("remotes", 2, ["x"] * 10_000, 0), "remotes do not continue"),
    ],
)
def test_a_whole_block_that_makes_no_sense_is_an_error(added: bytes, complaint: str) -> None:
    reader = SegmentReader(header_block(HEADER) + added, "a.seg")
    with pytest.raises(SegmentError, match=rf"^a\.seg: .*{complaint}"):
        list(reader.records())


def test_the_columns_are_those_of_the_schema() -> None:
    assert schema.KINDS == KINDS
    assert REASONS[REASON_CODE["none"]] == schema.NONE
    assert len(set(REASONS)) == len(REASONS) == len(REASON_CODE)


def test_only_what_is_of_the_dead_is_recovered(tmp_path: Path) -> None:
    data, ends = _segment()
    path = tmp_path / (HEADER.name + OPEN_SUFFIX)
    path.write_bytes(data[:-1])
    writer = os.open(path, os.O_RDWR)
    assert lock(writer)
    assert recover(path) is None
    assert path.stat().st_size == len(data) - 1
    os.close(writer)  # as the kernel does when a process is killed
    found = recover(path)
    assert found is not None
    assert found.path == tmp_path / (HEADER.name + ".seg")
    assert found.header == HEADER
    assert (found.until_us, found.torn_bytes) == (13, len(data) - 1 - ends[3])
    assert found.path.read_bytes() == data[: ends[3]]
    assert recover(path) is None
    assert [each.name for each in tmp_path.iterdir()] == [found.path.name]


def test_sessions_of_the_dead_end_with_their_segment(tmp_path: Path) -> None:
    records = [
        made.record(1_000, 1, kind=Kind.SESSION_OPEN, session=2, src=7),
        made.record(1_500, 2, kind=Kind.SESSION_OPEN, src=8),
        made.record(1_700, 99),
        made.record(2_000, 1, kind=Kind.SESSION_CLOSE, session=2, src=7, reason="idle"),
        made.record(9_000, -3, kind=Kind.SESSION_OPEN, session=2, src=9),
    ]
    header = Header("a.example", "worker-0", 5_000)
    path = tmp_path / (header.name + OPEN_SUFFIX)
    path.write_bytes(made.content(header, records, names=made.sessions("phone")))
    found = recover(path)
    assert found is not None and found.path is not None
    closed = {row.uid: row for row in rows_of(found.path) if row.kind == "session_close"}
    assert set(closed) == {1, 2, -3}
    assert (closed[1].reason, closed[1].at_us) == ("idle", 2_000)
    assert closed[2][:8] == (
        *(5_001, "a.example", "session_close", 8, 0, "", 0),
        3_501,
    )
    last = closed[-3]
    assert (last.at_us, last.latency_us, last.session) == (9_000, 0, "phone")
    assert {closed[2].reason, last.reason} == {"worker_lost"}
    # If the process is killed before it renames the file, the next one has nothing more to end.
    found.path.rename(path)
    assert recover(path) == found
    assert len(rows_of(found.path)) == len(records) + 2


def test_what_is_no_segment_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.seg.open"
    path.write_bytes(b"\0" * 4096)
    found = recover(path)
    assert found is not None
    assert (found.path, found.header, found.torn_bytes) == (None, None, 4096)
    assert [each.name for each in tmp_path.iterdir()] == ["a.seg.open.unreadable"]


def test_a_gap_written_twice_is_one(tmp_path: Path) -> None:
    first = gaps.Gap("a.example", "worker-0", 5, 9, None, gaps.Why.KILLED)
    second = gaps.Gap("a.example", "worker-1", 4, 6, 12, gaps.Why.PRESSURE)
    for gap in (first, second, first):
        gaps.write(tmp_path, gap)
    assert gaps.read(tmp_path) == [second, first]
    assert gaps.cost([first, second]) == (2, 12, 12, 12, 1)
    (tmp_path / "gaps" / "x.json").write_text('{"relay": "a"}')
    with pytest.raises(ValueError, match=r"x\.json: not a gap"):
        gaps.read(tmp_path)


def test_what_gaps_cost_is_told_with_what_is_unknown(tmp_path: Path) -> None:
    folder = tmp_path / "gaps"
    folder.mkdir()
    old = {"relay": "a", "worker": "w", "from_us": 1, "to_us": 2, "lost": None, "why": "killed"}
    (folder / "old.json").write_text(json.dumps(old))  # as written by releases without estimates
    unknown = gaps.read(tmp_path)
    assert str(gaps.cost(unknown)) == "an unknown number of events"
    gaps.write(tmp_path, gaps.Gap("a", "w", 3, 4, None, gaps.Why.KILLED, 1_500, 200_000))
    gaps.write(tmp_path, gaps.Gap("a", "w", 5, 6, 500, gaps.Why.DISK))
    gaps.write(tmp_path, gaps.Gap("a", "w", 7, 8, 0, gaps.Why.PRESSURE))
    found = gaps.cost(gaps.read(tmp_path))
    assert found == (3, 500, 2_000, 200_500, 1)
    assert str(found) == "about 2,000 events, at most 200,500; unknown in 1 gaps"


def test_a_gap_counts_whatever_the_relay_is_called(tmp_path: Path) -> None:
    gap = gaps.Gap("[::1]:8080", "worker-0", 1, 2, None, gaps.Why.KILLED)
    gaps.write(tmp_path, gap)
    assert gaps.read(tmp_path) == [gap]
