"""From a real relay to the audit: each message is accounted for, even when a worker, or the process
that packs its events, is killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from proto.rmb.stamp import deadline
from relay.analytics import backlog, gaps
from relay.analytics.conversion import convert
from relay.analytics.engine import Engine
from relay.analytics.gaps import Gap, Why
from relay.analytics.lake import Lake
from relay.analytics.segments import Header
from relay.analytics.spark.jobs import audit
from relay.analytics.spark.window import Window
from tests.relay.analytics import segment_files as made
from tests.support.redis_servers import start_valkey
from tests.support.relay_process import RelayProcess, make_data_folder
from tests.support.rmb_client import session
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

RECORD = {"analytics.record": "1", "analytics.flush_ms": "20", "analytics.segment_s": "0.5"}


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayProcess]:
    server = start_valkey(tmp_path / "redis", append_fsync="no")
    template = make_data_folder(tmp_path / "template")
    started = RelayProcess(tmp_path / "relay", template, server, settings=RECORD)
    try:
        yield started.start()
    finally:
        started.stop()
        server.remove()


async def _talk(relay: RelayProcess, count: int) -> None:
    one, two = fresh_twins(2)
    async with session(relay.url, one) as here, session(relay.url, two) as there:
        for _ in range(count):
            await here.request(there.key)
        await there.receive_many(count)


def _audit(lake: Lake, spark: SparkSession, lost: list[Gap]) -> dict[str, int]:
    first, last = lake.whole_span()
    engine = Engine(lake, session=spark)
    events = engine.events(lake.files(first, last))
    rows = audit.transform(events, Window(first, last), engine.gaps(lost)).collect()
    return {name: sum(row[name] or 0 for row in rows) for name in audit.COUNTS}


async def test_the_audit_of_a_relays_traffic_finds_nothing_unaccounted(
    relay: RelayProcess, spark: SparkSession
) -> None:
    lake = Lake(relay.folder / "data" / "analytics")
    await _talk(relay, 30)
    await eventually(lambda: [row["kind"] for row in made.rows(lake)].count("delivered") == 30)
    (worker,) = relay.worker_pids().values()
    os.kill(worker, signal.SIGKILL)
    await eventually(lambda: worker not in relay.worker_pids().values() and relay.worker_pids())
    (worker,) = relay.worker_pids().values()
    await eventually(lambda: psutil.Process(worker).children())
    (packer,) = psutil.Process(worker).children()
    packer.kill()
    await _talk(relay, 30)
    one, absent = fresh_twins(2)
    async with session(relay.url, one) as here:
        expired = await here.request((absent.id, "phone"), expiration=1)
        await here.barrier()
        lost = await here.request((absent.id, "phone"))
        await here.barrier()
    async with session(relay.url, absent, "phone") as there:
        received = [await there.receive()]
        if received[0].uid == expired.uid:
            received.append(await there.receive())
        assert received[-1].uid == lost.uid
    assert relay.stop() == 0

    # An event two hours later: messages without an outcome by then count as lost.
    newest_us = max(int(row["event_time"].timestamp() * 1e6) for row in made.rows(lake))
    later = Header("later.example", "0", newest_us)
    later_us = newest_us + 2 * made.HOUR_US
    convert(lake, made.put(lake, made.content(later, [made.record(later_us, 1)]), later))

    found = _audit(lake, spark, gaps.read(lake.root))
    assert {gap.why for gap in gaps.read(lake.root)} == {Why.KILLED}
    assert found["unaccounted"] == found["in_gap"] == 0
    assert found["in_flight"] == 1  # the one generated above
    assert found["uids"] == found["accepted"] == 63
    assert found["delivered_once"] + found["dropped"] == 62
    assert found["gaps"] == len(gaps.read(lake.root))
    assert found["gap_estimate"] <= found["gap_at_most"] > 0 == found["gap_events"]


def _stop(relay: RelayProcess, lake: Lake) -> None:
    """Stop the relay and convert what waits, even if its compactor had not started."""
    assert relay.stop() == 0
    for path in backlog.closed(lake):
        convert(lake, path)


async def test_what_expires_while_a_relay_is_stopped_is_accounted_for(
    relay: RelayProcess, spark: SparkSession
) -> None:
    lake = Lake(relay.folder / "data" / "analytics")
    one, absent = fresh_twins(2)
    async with session(relay.url, one) as here:
        expired = await here.request((absent.id, "phone"), expiration=3)
        kept = await here.request((absent.id, "phone"))
        await here.barrier()
    _stop(relay, lake)
    found = _audit(lake, spark, [])
    assert (found["uids"], found["in_flight"], found["expired"]) == (2, 2, 0)

    late = deadline(expired.timestamp, expired.expiration)
    await eventually(lambda: time.time() >= late, what="its deadline")
    relay.start()
    async with session(relay.url, absent, "phone") as there:
        assert (await there.receive()).uid == kept.uid
    _stop(relay, lake)
    later = Header("later.example", "0", time.time_ns() // 1000)
    later_us = later.started_us + 3 * made.HOUR_US
    convert(lake, made.put(lake, made.content(later, [made.record(later_us, 1)]), later))
    found = _audit(lake, spark, gaps.read(lake.root))
    assert (found["expired"], found["dropped"], found["delivered_once"]) == (1, 1, 1)
    assert found["unaccounted"] == found["in_gap"] == found["gap_estimate"] == 0
    assert found["in_flight"] == 1  # the one generated above
