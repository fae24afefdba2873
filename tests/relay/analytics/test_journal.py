"""Events on their way to the disk: written in time, bounded, and counted where they are lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.analytics import gaps, writer
from relay.analytics.journal import MARK_US, Journal, Rhythm
from relay.analytics.places import Places
from relay.analytics.records import MAX_REMOTES, OTHER, Kind
from relay.analytics.segments import SegmentReader
from relay.analytics.writer import BUFFER_RECORDS, MAX_BUFFERS, SegmentWriter
from tests.support.recorded import rows, rows_of
from tests.support.waiting import eventually

NOW = 1_800_000_000.0
ONCE = Rhythm(flush_s=3600, segment_s=3600)


class Clock:
    """Unix time that a test moves forward or back."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def _journal(folder: Path, clock: Callable[[], float], rhythm: Rhythm = ONCE) -> Journal:
    return Journal(SegmentWriter(Places(folder), "a.example", "worker-0"), clock, rhythm)


def _put(journal: Journal, count: int, kind: Kind = Kind.QUEUED, first: int = 0) -> None:
    for number in range(first, first + count):
        journal.put(kind, journal.now_us(), number, 1, 2, size_bytes=number)


async def _written(journal: Journal) -> None:
    await eventually(lambda: journal.all_written)


async def test_full_buffers_and_moments(tmp_path: Path) -> None:
    journal = _journal(tmp_path, Clock(), Rhythm(flush_s=0.01, segment_s=3600))
    journal.start()
    _put(journal, BUFFER_RECORDS + 5)
    (segment,) = await eventually(lambda: list(tmp_path.glob("segments/*.seg.open")))
    await eventually(lambda: len(rows_of(segment)) == BUFFER_RECORDS + 5, what="the rest")
    await journal.close()
    assert [row.uid for row in rows(tmp_path)] == list(range(BUFFER_RECORDS + 5))
    assert [each.suffix for each in tmp_path.glob("segments/*")] == [".seg"]
    figures = journal.figures()
    assert figures['relay_analytics_events_total{kind="queued"}'] == BUFFER_RECORDS + 5
    assert figures['relay_analytics_lost_total{reason="pressure"}'] == 0


async def test_under_pressure_events_are_dropped_and_counted(tmp_path: Path) -> None:
    """While the disk accepts nothing, excess events are dropped, counted by kind: a gap."""
    clock = Clock()
    journal = _journal(tmp_path, clock)
    held = MAX_BUFFERS * BUFFER_RECORDS
    _put(journal, held - BUFFER_RECORDS)
    clock.now += 5
    lost_from = journal.now_us()
    _put(journal, 2 * BUFFER_RECORDS, first=held)
    clock.now += 5
    _put(journal, 10, Kind.DELIVERED)
    assert journal.lost == [0, 0, 2 * BUFFER_RECORDS, *[0] * 7]
    journal.start()  # the disk is back
    await _written(journal)
    clock.now += 5
    _put(journal, 10, Kind.DROPPED)
    await journal.close()
    found = rows(tmp_path)
    kinds = [row.kind for row in found]
    assert len(found) == held - BUFFER_RECORDS + 20
    assert (kinds.count("delivered"), kinds.count("dropped")) == (10, 10)
    (gap,) = gaps.read(tmp_path)
    assert (gap.why, gap.lost) == ("pressure", 2 * BUFFER_RECORDS)
    assert gap.from_us == lost_from < gap.to_us == lost_from + 5_000_000
    assert journal.figures()['relay_analytics_lost_total{reason="pressure"}'] == 2 * BUFFER_RECORDS


async def test_a_segment_does_not_end_while_its_rows_wait_for_a_buffer(tmp_path: Path) -> None:
    """A segment stays open while its rows wait: their names are numbered for this segment."""
    clock = Clock()
    journal = _journal(tmp_path, clock, Rhythm(flush_s=3600, segment_s=10))
    _put(journal, (MAX_BUFFERS - 1) * BUFFER_RECORDS + 1)
    journal.put(Kind.SESSION_OPEN, journal.now_us(), 1, 1, 0, session="waits")
    clock.now += 11
    journal.flush()
    journal.put(Kind.SESSION_OPEN, journal.now_us(), 2, 1, 0, session="comes later")
    journal.start()
    await journal.close()
    named = [row.session for row in rows(tmp_path) if row.session]
    assert named == ["waits", "comes later"]


async def test_a_full_disk_loses_nothing_that_fits_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost when the disk takes half a block, then nothing, and then has room again."""
    real, refusals = os.writev, []

    def writev(file: int, parts: Any) -> int:
        if len(refusals) < 3:
            refusals.append(os.write(file, b"".join(parts)[:1000]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, parts)

    monkeypatch.setattr(writer, "RETRY_S", 0.01)
    journal = _journal(tmp_path, Clock())
    journal.start()
    journal.put(Kind.SESSION_OPEN, 1, 1, 1, 0, session="before")
    journal.flush()
    await _written(journal)
    monkeypatch.setattr(writer.os, "writev", writev)
    journal.put(Kind.SESSION_OPEN, 2, 2, 1, 0, session="after")
    _put(journal, 1000)
    journal.flush()
    await _written(journal)
    journal.put(Kind.SESSION_CLOSE, 3, 3, 1, 0, session="before")
    await journal.close()
    found = rows(tmp_path)
    assert [row.session for row in found if row.kind.startswith("session")] == [
        *("before", "after", "before")
    ]
    assert len(found) == 1003
    assert gaps.read(tmp_path) == []
    for segment in tmp_path.glob("segments/*.seg"):
        reader = SegmentReader(segment.read_bytes(), segment)
        assert sum(map(len, reader.records())) > 0
        assert reader.torn_bytes == 0
    assert journal.figures()["relay_analytics_write_failures_total"] == len(refusals) == 3


async def test_what_a_full_disk_does_not_take_before_the_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def writev(file: int, parts: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    journal = _journal(tmp_path, Clock())
    journal.start()
    monkeypatch.setattr(writer.os, "writev", writev)
    _put(journal, 30)
    await journal.close()
    assert rows(tmp_path) == []
    (gap,) = gaps.read(tmp_path)
    assert (gap.why, gap.lost) == ("disk", 30)
    assert journal.figures()['relay_analytics_lost_total{reason="disk"}'] == 30


async def test_names_are_bounded(tmp_path: Path) -> None:
    journal = _journal(tmp_path, Clock())
    journal.start()
    for number in range(MAX_REMOTES + 5):
        journal.put(Kind.FEDERATED_OUT, number, number, 1, 2, remote=f"relay{number}")
    journal.put(Kind.FEDERATED_OUT, number + 1, 1, 1, 2, remote="x" * 5000)
    journal.put(Kind.FEDERATED_OUT, number + 2, 1, 1, 2, remote="relay0")
    await journal.close()
    remotes = [row.remote for row in rows(tmp_path)]
    known = MAX_REMOTES - 2
    assert remotes[:known] == [f"relay{number}" for number in range(known)]
    assert remotes[known:] == [*[OTHER] * 8, "relay0"]


async def test_a_segment_ends_by_age_or_size_and_idle_ones_do_not_grow(tmp_path: Path) -> None:
    clock = Clock()
    journal = _journal(tmp_path, clock, Rhythm(3600, 10, 2 * BUFFER_RECORDS * 48))
    journal.start()
    await _written(journal)
    (opened,) = await eventually(lambda: list(tmp_path.glob("segments/*.seg.open")))
    sizes = set()
    for _ in range(3):
        clock.now += MARK_US / 1e6
        journal.flush()
        until_us = journal.now_us()
        await eventually(lambda: _until_us(opened) == until_us)  # noqa: B023 - awaited in the loop
        sizes.add(opened.stat().st_size)
    assert len(sizes) == 1

    async def closed(count: int) -> None:
        await eventually(lambda: len(list(tmp_path.glob("segments/*.seg"))) == count)

    _put(journal, 1)
    journal.flush()
    clock.now += 9
    journal.flush()
    await _written(journal)
    assert opened.exists()
    clock.now += 2
    journal.flush()
    await closed(1)
    _put(journal, 2 * BUFFER_RECORDS + 1)
    await closed(2)
    journal.flush()
    clock.now -= 86_400  # a clock that is set back does not keep the segment open for a day
    journal.flush()
    await closed(3)
    await journal.close()
    assert len(rows(tmp_path)) == 2 * BUFFER_RECORDS + 2


def _until_us(path: Path) -> int:
    reader = SegmentReader(path.read_bytes(), path)
    for _ in reader.records():
        pass
    return reader.until_us


WRITES_UNTIL_KILLED = """
import asyncio, sys, time
from pathlib import Path
from relay.analytics.journal import Journal, Rhythm
from relay.analytics.places import Places
from relay.analytics.records import Kind
from relay.analytics.writer import SegmentWriter

async def main():
    writer = SegmentWriter(Places(Path(sys.argv[1])), "a.example", "worker-0", "off")
    journal = Journal(writer, time.time, Rhythm(flush_s=0.02, segment_s=0.3))
    journal.start()
    number = 0
    while True:
        for _ in range(200):
            number += 1
            journal.put(Kind.QUEUED, journal.now_us(), number, 1, 2, f"session{number % 7}")
        await asyncio.sleep(0.001)

asyncio.run(main())
"""


async def test_killed_at_any_moment(tmp_path: Path) -> None:
    """A killed recorder leaves a sequence of whole events; the next one continues from there."""
    for turn in range(3):
        lake = tmp_path / str(turn)
        process = subprocess.Popen(
            [sys.executable, "-c", WRITES_UNTIL_KILLED, str(lake)],
            env={**os.environ, "DJANGO_SETTINGS_MODULE": "rmbsite.settings"},
        )
        try:
            await eventually(lambda: len(list(lake.glob("segments/*.seg"))) > turn)  # noqa: B023
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        left = max(lake.glob("segments/*.seg.open"))
        with left.open("ab") as file:
            file.write(left.read_bytes()[-500:-100])  # as a loss of power may leave it
        journal = _journal(lake, Clock())
        journal.start()
        await eventually(lambda: not left.exists())  # noqa: B023
        await journal.close()
        found = rows(lake)
        assert [row.uid for row in found] == list(range(1, len(found) + 1))
        assert all(row.session == f"session{row.uid % 7}" for row in found)
        gap = gaps.read(lake)[-1]
        assert (gap.why, gap.lost, gap.worker) == ("killed", None, "worker-0")
        assert gap.from_us >= found[-1].at_us
        assert gap.to_us >= gap.from_us


WRITES_STEADILY = """
import asyncio, mmap, sys, time
from pathlib import Path
from relay.analytics.journal import Journal, Rhythm
from relay.analytics.places import Places
from relay.analytics.records import Kind
from relay.analytics.writer import SegmentWriter

async def main():
    with open(sys.argv[2], "r+b") as file:
        count = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
    writer = SegmentWriter(Places(Path(sys.argv[1])), "a.example", "worker-0", "off", FLUSH_S)
    journal = Journal(writer, time.time, Rhythm(FLUSH_S, SEGMENT_S))
    journal.start()
    began = time.time()
    while True:
        while count[0] < 5_000 * (time.time() - began):
            journal.put(Kind.QUEUED, journal.now_us(), count[0], 1, 2)
            count[0] += 1
        await asyncio.sleep(0.002)

asyncio.run(main())
"""


@pytest.mark.parametrize("segment_s", [60, 1.5], ids=["one segment", "a new segment"])
async def test_the_gap_of_a_killed_recorder_tells_what_it_lost(
    tmp_path: Path, segment_s: float
) -> None:
    shared = tmp_path / "count"
    shared.write_bytes(bytes(8))
    program = WRITES_STEADILY.replace("FLUSH_S", "0.5").replace("SEGMENT_S", str(segment_s))

    def put() -> int:
        return int.from_bytes(shared.read_bytes(), sys.byteorder)

    def written() -> int:
        return len(rows(tmp_path))

    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), str(shared)],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "rmbsite.settings"},
    )
    try:
        if segment_s < 60:
            await eventually(lambda: list(tmp_path.glob("segments/*.seg")), what="a segment")
        else:
            await eventually(written, what="a write")
        first = written()
        await eventually(lambda: written() > first, what="another write")
        at = put()
        await eventually(lambda: put() > at + 500, what="events that are not written")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    journal = _journal(tmp_path, time.time)
    journal.start()
    await journal.close()
    (gap,) = gaps.read(tmp_path)
    assert gap.lost is None and gap.estimated is not None and gap.at_most is not None
    lost = put() - written()
    assert 0 < lost <= gap.estimated <= gap.at_most
    assert gap.estimated < gap.at_most / 10, "what it wrote before, not what it can hold"


async def test_files_that_were_never_begun_are_removed_when_they_are_old(tmp_path: Path) -> None:
    """Only old drafts are removed: a young one may be that of a process about to lock it."""
    folder = Places(tmp_path).segments
    folder.mkdir()
    young, old = folder / "_tmp-a-worker-1-1", folder / "_tmp-a-worker-2-1"
    for draft in (young, old):
        draft.touch()
    long_ago = old.stat().st_mtime - writer.OLD_DRAFT_S - 1
    os.utime(old, (long_ago, long_ago))
    journal = Journal(SegmentWriter(Places(tmp_path), "a", "0"), lambda: 0.0)
    journal.start()
    await journal.close()
    assert (young.exists(), old.exists()) == (True, False)
