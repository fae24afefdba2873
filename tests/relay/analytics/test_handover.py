"""Batches on their way to the process that packs them, and what becomes of them without it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relay.analytics import backlog, gaps, handover
from relay.analytics.gaps import Why
from relay.analytics.handover import Handover
from relay.analytics.journal import Rhythm
from relay.analytics.places import Places
from relay.analytics.records import KINDS, Kind
from relay.queues.batch import Batch, QueuePolicy, encode
from relay.queues.destination import Destination
from tests.relay.analytics import handovers
from tests.support.envelopes import request
from tests.support.recorded import Row, rows
from tests.support.relay_process import eventually

NOW_US = 1_800_000_000_000_000
MANY = 200


@pytest.fixture
async def started(tmp_path: Path) -> AsyncIterator[Handover]:
    found = handovers.start(tmp_path)
    yield found
    await found.close()


def batch(first: int, count: int = 3, size_bytes: int = 100) -> Batch:
    """A batch of messages with numbers for uids."""
    made = Batch()
    destination = Destination((2, None))
    sender: Any = SimpleNamespace(key=(1, "phone"))
    for number in range(first, first + count):
        envelope = request((1, "phone"), (2, None), bytes(size_bytes), uid=str(number))
        payload = envelope.SerializeToString()
        made.items.append((destination, payload, sender, envelope))
        made.size_bytes += len(payload)
    made.encoded = encode(made, "boot", 1, QueuePolicy(), 0.0, lambda *_: None)
    return made


def hand_over(to: Handover, what: Batch) -> bool:
    return to.committed(what, NOW_US, 7, [])


def of_kind(kind: str, found: list[Row]) -> list[int]:
    return [row.uid for row in found if row.kind == kind]


async def written(of: Handover, count: int) -> None:
    await eventually(lambda: of.counts()[Kind.DELIVERED] == count, 20)


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
    assert os.sched_getscheduler(started.pid) == os.SCHED_IDLE
    taken = 0
    while hand_over(started, batch(3 + 64 * taken, 64, 3000)):
        taken += 1
    assert taken > 3
    assert os.sched_getscheduler(started.pid) == os.SCHED_OTHER
    # What must be told of the last one has room.
    late = batch(3 + 64 * (taken - 1), 64, 3000)
    started.unwritten([payload for _, payload, _, _ in late.items])
    os.kill(started.pid, signal.SIGCONT)
    await written(started, 3 + 64 * (taken - 1))
    assert os.sched_getscheduler(started.pid) == os.SCHED_IDLE
    assert hand_over(started, batch(1_000_000))
    await started.close()
    found = rows(tmp_path)
    assert len(of_kind("accepted", found)) == 3 + 64 * taken + 3
    assert sorted(of_kind("queued", found)) == sorted(of_kind("accepted", found)[-67:-3])


async def test_a_process_that_takes_nothing_for_long_is_hurried(started: Handover) -> None:
    """As where other programs want all cores; here it is stopped, and given more to do."""
    hand_over(started, batch(0))
    await written(started, 3)
    assert started.pid is not None
    os.kill(started.pid, signal.SIGSTOP)
    number = 3
    while os.sched_getscheduler(started.pid) == os.SCHED_IDLE:
        assert hand_over(started, batch(number))
        number += 3
        await asyncio.sleep(handover.TICK_S)
    assert number > 2 * 3
    os.kill(started.pid, signal.SIGCONT)
    await written(started, number)


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
    taken = 0
    while hand_over(started, batch(3 + 64 * taken, 64, 3000)):  # it is gone, and not missed yet
        taken += 1
    await written(started, 3 + 64 * taken)
    assert started.pid != killed
    assert hand_over(started, batch(1_000_000))
    await started.close()
    assert len(set(of_kind("delivered", rows(tmp_path)))) == 3 + 64 * taken + 3
    # What it had packed and not written is told as that of a killed worker: here it was nothing.
    backlog.close_dead(Places(tmp_path))
    (gap,) = gaps.read(tmp_path)
    assert (gap.why, gap.worker) == (Why.KILLED, "worker-0-packer")


async def test_the_end_does_not_leave_what_nobody_took(
    started: Handover, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hand_over(started, batch(0))
    await written(started, 3)
    assert started.pid is not None
    os.kill(started.pid, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
    hand_over(started, batch(3))
    await eventually(lambda: started._restart is not None)
    await started.close()
    assert "ended with -9" in caplog.text
    assert len(set(of_kind("delivered", rows(tmp_path)))) == 6
    assert started.counts()[Kind.DELIVERED] == 6


async def test_what_a_killed_worker_handed_over_is_written(tmp_path: Path) -> None:
    """The process gets to know of it by its pipe; here the end of that is closed by hand."""
    started = handovers.start(tmp_path, Rhythm(flush_s=3600, segment_s=3600))
    hand_over(started, batch(0))
    await asyncio.sleep(0)
    await eventually(lambda: started._timer is None)  # it was shown
    started._let_go()
    assert started._child is not None
    assert await asyncio.to_thread(started._child.wait) == 0
    assert len(of_kind("delivered", rows(tmp_path))) == 3
    await started.close()


async def test_signals_do_not_end_it_before_its_worker(started: Handover, tmp_path: Path) -> None:
    hand_over(started, batch(0))
    await written(started, 3)
    assert started.pid is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(started.pid, number)
    hand_over(started, batch(3))
    await written(started, 6)
    await started.close()
    assert len(of_kind("accepted", rows(tmp_path))) == 6


async def test_without_a_process_the_worker_packs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handover.sys, "executable", str(tmp_path / "nothing"))
    started = handovers.start(tmp_path)
    assert not hand_over(started, batch(0))
    assert "the worker packs events itself" in caplog.text
    await started.close()
