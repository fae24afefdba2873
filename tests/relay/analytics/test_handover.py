"""Batches on their way to the process that packs them, and what happens to them without it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay.analytics import backlog, gaps, handover, packer
from relay.analytics.gaps import Why
from relay.analytics.handover import COMMITTED, Handover
from relay.analytics.journal import Rhythm
from relay.analytics.packer import Packer
from relay.analytics.places import Places
from relay.analytics.records import KINDS, Kind
from relay.analytics.ring import Record
from relay.analytics.segments import SegmentReader
from relay.analytics.writer import BUFFER_RECORDS, SegmentWriter
from relay.queues.batch import Batch, QueuePolicy, encode
from relay.queues.destination import Destination
from tests.relay.analytics import handovers
from tests.support.envelopes import request
from tests.support.recorded import Row, rows
from tests.support.waiting import eventually

NOW_US = 1_800_000_000_000_000
MANY = 200
SELECTABLE = 1024
"""Number of file descriptors that `select` can take."""


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Handover]:
    found = handovers.start(tmp_path)
    yield found
    await found.close()


def batch(first: int, count: int = 3, size_bytes: int = 100, name: str = "phone") -> Batch:
    """Return a batch of messages whose uids are numbers."""
    made = Batch()
    destination = Destination((2, None))
    sender: Any = SimpleNamespace(key=(1, name))
    for number in range(first, first + count):
        envelope = request((1, name), (2, None), bytes(size_bytes), uid=str(number))
        payload = envelope.SerializeToString()
        made.items.append((destination, payload, sender))
        made.size_bytes += len(payload)
    nobody: Any = lambda *_: None  # noqa: E731
    made.encoded = encode(made, "boot", 1, QueuePolicy(), 0.0, nobody, nobody)
    return made


def hand_over(to: Handover, what: Batch) -> bool:
    return to.committed(what, NOW_US, 7, [])


def fill(to: Handover) -> int:
    """Hand over batches of 64, numbered from 3 on, until there is no room; return their number."""
    taken = 0
    while hand_over(to, batch(3 + 64 * taken, 64, 3000)):
        taken += 1
    return taken


def of_kind(kind: str, found: list[Row]) -> list[int]:
    return [row.uid for row in found if row.kind == kind]


async def written(of: Handover, count: int) -> None:
    await eventually(lambda: of.counts()[Kind.DELIVERED] == count)


async def test_all_is_written_when_it_is_closed(started: Handover, tmp_path: Path) -> None:
    for number in range(MANY):
        assert hand_over(started, batch(3 * number))
    await started.close()
    found = rows(tmp_path)
    assert len(set(of_kind("accepted", found))) == len(of_kind("delivered", found)) == 3 * MANY
    counts = dict(zip(KINDS, started.counts(), strict=False))
    assert counts["accepted"] == counts["delivered"] == 3 * MANY
    assert started.counts()[len(KINDS) :] == [0, 0, 0]
    assert not hand_over(started, batch(0))


async def test_what_goes_out_in_many_pieces_is_not_taken(started: Handover) -> None:
    large = batch(0, size_bytes=10_000)
    assert type(large.encoded) is list
    assert not hand_over(started, large)


async def test_a_process_that_does_not_keep_up_is_given_no_more(
    started: Handover, tmp_path: Path
) -> None:
    hand_over(started, batch(0))
    await written(started, 3)
    assert started.pid is not None
    os.kill(started.pid, signal.SIGSTOP)
    taken = fill(started)
    assert taken > 3
    # There is still room for what must be reported about the last batch.
    late = batch(3 + 64 * (taken - 1), 64, 3000)
    started.unwritten([payload for _, payload, _ in late.items])
    os.kill(started.pid, signal.SIGCONT)
    await written(started, 3 + 64 * (taken - 1))
    assert hand_over(started, batch(1_000_000))
    await started.close()
    found = rows(tmp_path)
    assert len(of_kind("accepted", found)) == 3 + 64 * taken + 3
    assert sorted(of_kind("queued", found)) == sorted(of_kind("accepted", found)[-67:-3])


async def test_another_process_goes_on_where_one_was_killed(
    started: Handover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "RESTART_S", 0.1)
    hand_over(started, batch(0))
    await written(started, 3)
    killed = started.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, killed, os.WEXITED | os.WNOWAIT)
    taken = fill(started)  # it has ended, and the worker has not noticed yet
    await written(started, 3 + 64 * taken)
    assert started.pid != killed
    assert hand_over(started, batch(1_000_000))
    await started.close()
    assert len(set(of_kind("delivered", rows(tmp_path)))) == 3 + 64 * taken + 3
    # What it had packed but not written is reported like a killed worker's loss: here, nothing.
    backlog.close_dead(Places(tmp_path))
    (gap,) = gaps.read(tmp_path)
    assert (gap.why, gap.worker) == (Why.KILLED, "worker-0-packer")


@pytest.mark.parametrize("noticed", [True, False])
async def test_the_end_does_not_leave_what_nobody_took(
    started: Handover, tmp_path: Path, caplog: pytest.LogCaptureFixture, noticed: bool
) -> None:
    hand_over(started, batch(0))
    await written(started, 3)
    assert started.pid is not None
    os.kill(started.pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
    hand_over(started, batch(3))
    if noticed:
        await eventually(lambda: started._restart is not None)
    await started.close()
    assert "ended with -9" in caplog.text
    assert len(set(of_kind("delivered", rows(tmp_path)))) == 6
    assert started.counts()[Kind.DELIVERED] == 6


async def test_a_process_starts_beside_many_sockets(
    started: Handover, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process starts although its files have the same high descriptors as in the worker."""
    monkeypatch.setattr(handover, "RESTART_S", 0.1)
    hand_over(started, batch(0))
    await written(started, 3)
    killed = started.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, killed, os.WEXITED | os.WNOWAIT)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    many = [os.open("/dev/null", os.O_RDONLY) for _ in range(SELECTABLE)]
    try:
        hand_over(started, batch(3))
        await eventually(lambda: started.pid != killed)
        assert started._wake > SELECTABLE
        await written(started, 6)
    finally:
        for file in many:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_names_begin_anew_with_each_segment(tmp_path: Path) -> None:
    started = handovers.start(tmp_path, Rhythm(flush_s=0.02, segment_s=0.1))
    count = 0
    while len(list(tmp_path.glob("segments/*.seg"))) < 3:
        assert hand_over(started, batch(3 * count, name=f"name{count}"))
        assert hand_over(started, batch(1_000_000 + count, 1, name="same"))
        count += 1
        await asyncio.sleep(handover.TICK_S)
    await started.close()
    sessions = Counter(row.session for row in rows(tmp_path))
    assert sessions == {"same": 2 * count, **{f"name{n}": 6 for n in range(count)}}


def test_what_is_known_of_senders_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packer, "MAX_SENDERS", 4)
    made = Packer(SegmentWriter(Places(tmp_path), "a.example", "0", "off"), Rhythm())
    made.journal.begin()
    for number in range(10):
        made.take(recorded(batch(3 * number, name=f"name{number}"), NOW_US))
        assert len(made._tails) <= 4
    made.journal.finish()
    assert Counter(row.session for row in rows(tmp_path)) == {f"name{n}": 6 for n in range(10)}


def test_a_gap_begins_before_what_was_lost(tmp_path: Path) -> None:
    """A gap begins before the first lost event.

    Events that waited long in the ring, as when another process had to be started, are packed and
    lost: a full buffer that was written before them must not claim to cover everything up to now.
    """
    made = Packer(SegmentWriter(Places(tmp_path), "a.example", "0", "off"), Rhythm())
    made.journal.begin()
    began_us = int(time.time() * 1e6) - 60_000_000
    count = BUFFER_RECORDS // (2 * 64) + 20
    for number in range(count):
        made.take(recorded(batch(64 * number, 64), began_us + number * 100_000))
    kept = made.journal.buffer[: made.journal.at]
    assert kept
    lost_from_us = int.from_bytes(kept[:8], "little")
    made.journal._writer.close()  # the last buffer is not written
    (path,) = tmp_path.glob("segments/*.seg")
    reader = SegmentReader(path.read_bytes(), path)
    assert sum(len(part) for part in reader.records())
    assert reader.until_us <= lost_from_us


def recorded(made: Batch, now_us: int) -> Record:
    assert type(made.encoded) is bytes
    return Record(COMMITTED, len(made.items), 0, now_us, 7, made.encoded)


async def test_what_a_killed_worker_handed_over_is_written(tmp_path: Path) -> None:
    """The process writes what a killed worker handed over.

    Its pipe reports that the worker has ended; here the test closes the worker's end of the pipe.
    """
    started = handovers.start(tmp_path, Rhythm(flush_s=3600, segment_s=3600))
    hand_over(started, batch(0))
    await asyncio.sleep(0)
    await eventually(lambda: started._timer is None)  # the process can see it
    started._let_go()
    assert started._child is not None
    assert await asyncio.to_thread(started._child.wait) == 0
    assert len(of_kind("delivered", rows(tmp_path))) == 3
    await started.close()


@pytest.mark.parametrize("starting", [True, False])
async def test_signals_do_not_end_it_before_its_worker(
    started: Handover, tmp_path: Path, starting: bool
) -> None:
    hand_over(started, batch(0))
    if not starting:
        await written(started, 3)
    first = started.pid
    assert first is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(first, number)
    hand_over(started, batch(3))
    await written(started, 6)
    assert started.pid == first
    await started.close()
    assert len(of_kind("accepted", rows(tmp_path))) == 6


async def test_without_a_process_the_worker_packs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handover, "module_command", lambda *_: [str(tmp_path / "nothing")])
    started = handovers.start(tmp_path)
    assert not hand_over(started, batch(0))
    assert "the worker packs events itself" in caplog.text
    await started.close()
