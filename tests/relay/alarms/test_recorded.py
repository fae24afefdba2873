"""Alarms about events for analytics: lost ones, and those that do not reach the lake."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from relay.alarms.models import Alarm, Evaluation
from relay.analytics import backlog, lag
from relay.analytics.lag import Lag
from relay.analytics.places import Places
from relay.federation import counters
from relay.queues import keys
from tests.relay.alarms.conftest import Evaluate, configure, states
from tests.relay.conftest import AddWorker
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

PRESSURE = 'relay_analytics_lost_total{reason="pressure"}'


@pytest.fixture
def lake(site_redis: RedisServer, settings: Any, tmp_path: Path) -> Places:
    """Return the folders of a relay that records."""
    configure(settings, "analytics", record=True, dir=str(tmp_path))
    places = Places(tmp_path)
    places.segments.mkdir()
    return places


def waits(lake: Places, name: str, age_s: float) -> Path:
    path = lake.segments / name
    path.write_bytes(bytes(1500))
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def detail(rule: str, subject: str) -> str:
    return Alarm.objects.get(rule=rule, subject=subject).detail


def readings(rule: str) -> dict[str, Any]:
    return dict(Evaluation.objects.get().readings.get(rule, {}))


def test_workers_and_drainers_lose_events(
    lake: Places, site_redis: RedisServer, add_worker: AddWorker, evaluate: Evaluate
) -> None:
    add_worker("a", {PRESSURE: 5000.0})
    evaluate(2)
    assert states("events_lost") == {}, "nobody knows when these were lost"
    add_worker("a", {PRESSURE: 5010.0})
    field = counters.field(counters.EVENTS, PRESSURE)
    site_redis.run("HSET", keys.FEDERATION_COUNTERS, field, 32)
    evaluate()
    assert states("events_lost") == {"pressure": "firing"}
    assert detail("events_lost", "pressure") == (
        "42 events within 10 minutes, most by deliveries to other relays: the disk did not keep up"
    )


def test_the_disk_has_no_room_for_what_waits(lake: Places, evaluate: Evaluate) -> None:
    evaluate()
    assert states("events_lost") == {}
    path = waits(lake, "a-0-1.seg", 60)
    assert backlog.keep_within(lake, 100) == 1 and not path.exists()
    evaluate()
    assert states("events_lost") == {"disk": "firing"}
    (gap,) = lake.gaps.iterdir()
    os.utime(gap, (time.time() - lag.LOST_S - 5,) * 2)
    evaluate(65)
    assert states("events_lost") == {}


def test_segments_wait(lake: Places, evaluate: Evaluate) -> None:
    oldest = waits(lake, "a-0-1.seg", 400)
    waits(lake, "a-0-2.seg", 1)
    evaluate(8)
    assert states("events_waiting") == {lag.host(): "firing"}
    assert detail("events_waiting", lag.host()) == "2 segments wait, 3,000 bytes"
    oldest.unlink()
    evaluate(14)
    assert states("events_waiting") == {}


def test_the_compactor_of_another_machine(
    lake: Places, site_redis: RedisServer, evaluate: Evaluate
) -> None:
    def says(host: str, found: Lag) -> None:
        site_redis.run("HSET", keys.LAKES, host, json.dumps(found._asdict()))

    now = time.time()
    says("works", Lag(now, 0.2, 1, 900))
    says("behind", Lag(now, 900.0, 70, 90_000_000))
    says("silent", Lag(now - 400))
    says("gone", Lag(now - lag.GONE_S - 60, 9999.0, 1, 1))
    says(lag.host(), Lag(now, 9999.0, 1, 1))  # this machine reads its own folder
    evaluate(8)
    assert states("events_waiting") == {"behind": "firing", "silent": "firing"}
    assert detail("events_waiting", "silent").startswith("no compactor was seen for 6 min")
    says("behind", Lag(now, lost=7))
    evaluate(14)
    assert states("events_waiting") == {"silent": "firing"}
    assert states("events_lost") == {"disk": "firing"}


def test_a_relay_that_does_not_record(
    lake: Places, site_redis: RedisServer, evaluate: Evaluate, settings: Any
) -> None:
    configure(settings, "analytics", record=False)
    evaluate()
    assert readings("events_waiting") == {} == readings("events_lost")
    waits(lake, "a-0-1.seg", 400)  # no process converts it since recording was switched off
    evaluate(8)
    assert states("events_waiting") == {lag.host(): "firing"}
    assert readings("events_lost") == {}
