"""Invocations as events, from the processes of a lattice through Redis into the lake."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from lattice.bridge.counts import REFUSED, Counts, Passing
from lattice.bridge.links import Links
from lattice.bridge.to_lattice import ToLattice
from lattice.errors import CallTimeoutError
from lattice.monitor.watch import Watch
from lattice.recording import FULL_ROWS, TELL_EVERY_S, Events
from peer.client import CommandError, Request
from proto.lattice import recording
from proto.lattice.entity import Entity
from proto.lattice.policy import Direction, Policies, read_policy
from proto.lattice.recording import (
    MAX_BATCHES,
    MAX_ROWS,
    MAX_SHAPES,
    MAX_TEXT_CHARS,
    OTHERS,
    STREAM,
    Batch,
    EventKind,
    Shape,
    uid_of,
)
from proto.rmb.address import Address
from relay.analytics.compactor import Compactor
from relay.analytics.conversion import convert
from relay.analytics.lake import Lake
from relay.analytics.merging import merge
from relay.analytics.models.lattice import MAX_TEXT_CHARS as MAX_STORED_CHARS
from relay.analytics.segments import Header
from relay.analytics.spark import invocations, schema
from tests.lattice.test_judge import ACTOR, HOST, NOW, PROVIDER, invocation, judge
from tests.relay.analytics import segment_files as made
from tests.support.redis_servers import RedisServer

SHAPE = Shape(EventKind.SEEN, ACTOR.public, PROVIDER.public, "Main", "a:b", "A.B", HOST.public)
KEYS = {"src_key": ACTOR.public, "dst_key": PROVIDER.public}
NAMES = {"link": "Main", "contract": "a:b", "operation": "A.B", "host_id": HOST.public}


class Clock:
    """A monotonic clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
async def events(valkey: RedisServer) -> AsyncIterator[Events]:
    async with AsyncRedis.from_url(valkey.url) as redis:
        yield Events(redis, Clock())


def take_in(lake: Lake, valkey: RedisServer) -> int:
    """Bring all waiting events into the lake, as a compactor does."""
    with Redis.from_url(valkey.url) as client:
        work = Compactor(lake, keep_days=400, segments_max_bytes=1).take_in(client, "a.example")
    assert not work.trouble
    return work.rows


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without empty values and without the relay's name."""
    return [
        {name: value for name, value in row.items() if value not in (None, "", "a.example")}
        for row in rows
    ]


async def test_what_the_monitor_saw(lake: Lake, valkey: RedisServer, events: Events) -> None:
    watch = Watch(judge(window_s=0), events=events)
    subject, data = invocation()
    for message in (data, data, b"garbage"):
        watch.take(subject, message)
    began, keeping = time.time(), asyncio.create_task(watch.keep())
    while watch.judged < 3:
        await asyncio.sleep(0)
    keeping.cancel()
    await events.finish()
    assert take_in(lake, valkey) == 3 and valkey.run("XLEN", STREAM) == 0
    rows = shown(made.rows(lake))
    assert all(abs(row.pop("event_time").timestamp() - began) < 60 for row in rows)
    common = {"kind": "lattice_seen", "protocol": "lattice"}
    seen = {**common, **KEYS, **NAMES, "size_bytes": len(data), "uid": uid_of(f"{0:032x}")}
    garbage = {**common, "size_bytes": 7, "uid": 0, "reason": "undecodable"}
    assert rows == [{**seen, "reason": "none"}, {**seen, "reason": "replay"}, garbage]


async def test_what_the_bridge_passed_and_refused(
    lake: Lake, valkey: RedisServer, events: Events
) -> None:
    async def invoke(
        target: Entity, operation: str, payload: bytes, timeout_s: float, passing: Passing
    ) -> bytes:
        passing.origin, passing.host_id, passing.id = PROVIDER.public, HOST.public, "id"
        if operation == "Too.Slow":
            raise CallTimeoutError("subject", 1.0)
        return b"result"

    policy = {
        "name": "all",
        "direction": "to_lattice",
        "twins": "7",
        "entities": "*",
        "names": "*",
    }
    policies = Policies([read_policy(policy)])
    counts = Counts(events)
    bridge = ToLattice(invoke, Links(), None, lambda: policies, counts)  # type: ignore[arg-type]
    for twin, operation in ((7, "A.B"), (7, "Too.Slow"), (8, "A.B")):
        command = f"lattice.{ACTOR.public}.{operation}"
        request = Request("uid", Address(twin), command, b"asked", None, None, 2**33)
        with contextlib.suppress(CommandError):
            await bridge.handle(request)
    with counts.counting(Passing(Direction.TO_TWIN, "Twin.Call", "rmb:twin", "M", "V", twin=9)):
        pass
    await events.finish()
    assert take_in(lake, valkey) == 4
    rows = shown(made.rows(lake))
    assert all(row.pop("latency_us") >= 0 and row.pop("event_time") for row in rows)
    out = {"kind": "lattice_out", "protocol": "lattice", "dst_key": ACTOR.public, "size_bytes": 5}
    by_bridge = {"src_key": PROVIDER.public, "host_id": HOST.public, "uid": uid_of("id")}
    assert rows == [
        {**out, **by_bridge, "src_twin": 7, "operation": "A.B", "reason": "none",
         "answer_bytes": 6},
        {**out, **by_bridge, "src_twin": 7, "operation": "Too.Slow", "reason": "timed_out"},
        {**out, "src_twin": 8, "operation": "A.B", "reason": "no_policy", "uid": 0},
        {"kind": "lattice_in", "protocol": "lattice", "src_key": "M", "dst_key": "V",
         "dst_twin": 9, "contract": "rmb:twin", "operation": "Twin.Call", "reason": "none",
         "size_bytes": 0, "uid": 0},
    ]  # fmt: skip


async def test_rows_are_told_from_time_to_time_or_when_they_are_many(
    valkey: RedisServer, events: Events
) -> None:
    clock = events._clock
    assert isinstance(clock, Clock)

    async def told() -> int:
        await events.tell()
        count = valkey.run("XLEN", STREAM)
        assert isinstance(count, int)
        return count

    events.add(SHAPE, NOW)
    assert await told() == 0
    clock.now = TELL_EVERY_S
    assert await told() == 1 and await told() == 1
    for _ in range(FULL_ROWS):
        events.add(SHAPE, NOW)
    assert await told() == 2


async def test_what_does_not_fit_is_lost_and_counted(
    lake: Lake, valkey: RedisServer, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MAX_ROWS + 3):
        events.add(SHAPE._replace(origin=f"M{number}"), NOW)
    assert events.lost == 3
    for _ in range(MAX_BATCHES):
        valkey.run("XADD", STREAM, "*", "rows", "", "shapes", "[]")
    await events.tell(now=True)
    events.add(SHAPE, NOW)
    assert valkey.run("XLEN", STREAM) == MAX_BATCHES, "the lake does not keep up"
    assert take_in(lake, valkey) == 0
    await events.finish()
    assert take_in(lake, valkey) == MAX_ROWS + 1
    assert "3 events of invocations are lost" in caplog.text
    keys = [row["src_key"] for row in made.rows(lake)]
    assert len({*keys}) == MAX_SHAPES + 2 and keys.count(OTHERS) == MAX_ROWS - MAX_SHAPES


@pytest.mark.parametrize("full", [True, False])
async def test_what_cannot_be_sent_at_the_end_is_reported(
    valkey: RedisServer, events: Events, caplog: pytest.LogCaptureFixture, full: bool
) -> None:
    """Rows count also if they are in a batch that Redis has not accepted."""
    events.add(SHAPE, NOW)
    for _ in range(MAX_BATCHES):
        valkey.run("XADD", STREAM, "*", "rows", "", "shapes", "[]")
    await events.tell(now=True)
    events.add(SHAPE, NOW)
    if not full:
        valkey.run("SET", STREAM, "a foreign value")
    await events.finish()
    assert "2 events are lost" in caplog.text


async def test_a_compactor_that_was_killed_begins_again(
    lake: Lake, valkey: RedisServer, events: Events
) -> None:
    """A killed compactor repeats a batch (of two hours) whose files and entry both exist."""
    for hour in range(2):
        events.add(SHAPE, NOW + 3600 * hour, str(hour))
    await events.finish()
    with Redis.from_url(valkey.url) as client:
        (entry,) = client.xrange(STREAM)
        for _ in range(2):
            assert take_in(lake, valkey) == 2
            assert made.uids(lake) == sorted([uid_of("0"), uid_of("1")])
            client.delete(STREAM)  # the key remembers the last id
            client.xadd(STREAM, entry[1], id=entry[0])


async def test_rows_of_both_sources_are_merged(
    lake: Lake, valkey: RedisServer, events: Events
) -> None:
    events.add(SHAPE, NOW, "1")
    await events.finish()
    take_in(lake, valkey)
    header = Header("a.example", "0", int(NOW * 1e6))
    records = made.events(int(NOW * 1e6), range(3))
    convert(lake, made.put(lake, made.content(header, records), header))
    before = sorted(map(repr, shown(made.rows(lake))))
    day = datetime.fromtimestamp(NOW, UTC)
    assert merge(lake, day.date(), day.hour) is not None
    assert sorted(map(repr, shown(made.rows(lake)))) == before


def test_batches_that_cannot_be_read_are_dropped(
    lake: Lake, valkey: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    shapes, rows, _ = Batch([SHAPE], bytes(40)).encode().values()
    for fields in (
        ("shapes", "no json", "rows", ""),
        ("shapes", "[]", "rows", rows),
        ("shapes", shapes, "rows", b"\xff" * 7 + b"\x7f" + bytes(32)),
    ):
        valkey.run("XADD", STREAM, "*", *fields)
    assert take_in(lake, valkey) == 0 and valkey.run("XLEN", STREAM) == 0
    assert caplog.text.count("cannot be read are dropped") == 3
    assert lake.files(date.min, date.max) == []


def test_the_jobs_know_the_same_words() -> None:
    assert {*invocations.REFUSED} == REFUSED
    assert {*schema.LATTICE_KINDS} == {*EventKind}
    assert schema.NONE == recording.OK
    assert MAX_STORED_CHARS == MAX_TEXT_CHARS
