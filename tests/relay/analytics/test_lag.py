"""Segments that wait on each machine, as its compactor reports them in Redis."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from relay.analytics import gaps, lag
from relay.analytics.gaps import Gap, Why
from relay.analytics.lag import Lag
from relay.analytics.places import Places
from relay.ops.metric_names import BY_NAME, family
from relay.queues import keys
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

NOW = 1_800_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Places:
    places = Places(tmp_path)
    places.segments.mkdir()
    return places


def segment(places: Places, name: str, age_s: float, size_bytes: int = 100) -> Path:
    path = places.segments / name
    path.write_bytes(bytes(size_bytes))
    os.utime(path, (NOW - age_s,) * 2)
    return path


def test_nothing_is_there_yet(tmp_path: Path) -> None:
    assert lag.look(Places(tmp_path / "none"), NOW) == Lag(NOW)


def test_closed_segments_wait(folder: Places) -> None:
    segment(folder, "a-0-1.seg", 90)
    segment(folder, "a-0-2.seg", 7)
    segment(folder, "a-0-3.seg.open", 500)
    segment(folder, "a-0-4.seg.unreadable", 900)
    assert lag.look(folder, NOW) == Lag(NOW, 90.0, 2, 200)


def test_what_the_disk_lost_lately(folder: Places) -> None:
    def gap(worker: str, lost: int | None, why: Why, age_s: float) -> Path:
        path = gaps.write(folder.root, Gap("a", worker, 1, 2, lost, why))
        os.utime(path, (NOW - age_s,) * 2)
        return path

    gap("0", 33, Why.DISK, 30)
    gaps.write(folder.root, Gap("a", "5", 1, 2, None, Why.DISK, 7, 7))
    os.utime(next(folder.gaps.glob("a-5-*")), (NOW - 30,) * 2)
    gap("1", None, Why.DISK, 30)
    gap("2", 1000, Why.DISK, lag.LOST_S + 1)
    gap("3", 1000, Why.PRESSURE, 30)
    assert lag.look(folder, NOW).lost == 41
    path = gap("4", 5, Why.DISK, 30)
    path.write_text("torn")
    os.utime(path, (NOW, NOW))
    assert lag.look(folder, NOW).lost == 42, "nobody knows how many it tells of"


def test_machines_say_it_and_are_forgotten(valkey: RedisServer) -> None:
    client = valkey.client()
    others = {
        "other": json.dumps(Lag(NOW - 60, 3.5, 2, 4096)._asdict()),
        "silent": json.dumps(Lag(NOW - lag.SILENT_S - 1, 1.0, 1, 1)._asdict()),
        "gone": json.dumps(Lag(NOW - lag.GONE_S - 1)._asdict()),
        "later release": '{"at": 1, "new": 2}',
        "odd": '{"at": "x"}',
    }
    client.hset(keys.LAKES, mapping=others)
    lag.publish(client, Lag(NOW))
    found = lag.read(client)
    assert set(found) == {lag.host(), "other", "silent"}
    assert client.hlen(keys.LAKES) == 3
    assert found["other"].silent_s(NOW) == 0 < found["silent"].silent_s(NOW)
    told = lag.figures(found, NOW)
    assert told['relay_analytics_waiting_seconds{host="other"}'] == 3.5
    assert told['relay_analytics_waiting_bytes{host="other"}'] == 4096
    assert told['relay_analytics_waiting_seconds{host="silent"}'] == lag.SILENT_S + 1
    assert len(told) == 6
    assert lag.figures(found, NOW + lag.GONE_S + 1) == {}
    assert {family(name.partition("{")[0]) for name in told} <= set(BY_NAME)


def test_it_is_told_until_the_end(valkey: RedisServer, folder: Places) -> None:
    client, ended = valkey.client(), threading.Event()
    segment(folder, "a-0-1.seg", 0, 77)
    thread = threading.Thread(target=lag.tell, args=(client, folder, ended))
    thread.start()
    try:
        wait_until(lambda: lag.read(client))
        (found,) = lag.read(client).values()
        assert (found.segments, found.size_bytes) == (1, 77)
        assert abs(found.at - time.time()) < 60
    finally:
        ended.set()
        thread.join()
    assert lag.read(client) == {}
