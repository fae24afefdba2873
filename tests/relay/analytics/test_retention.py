"""Old days are deleted, and a wrong clock deletes none of them too early."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from relay.analytics import gaps, retention
from relay.analytics.compactor import alone
from relay.analytics.gaps import Gap, Why
from relay.analytics.lake import Lake

TODAY = date(2026, 3, 20)
DAY = timedelta(days=1)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def add(lake: Lake, first: date, last: date, step: int = 1) -> list[date]:
    """Add days with one file each."""
    days = [first + n * DAY for n in range(0, (last - first).days + 1, step)]
    for day in days:
        lake.hour(day, 5).mkdir(parents=True)
        (lake.hour(day, 5) / "a-1.parquet").touch()
    return days


def noon(day: date) -> float:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC).timestamp()


def expire(lake: Lake, keep_days: int, today: date, *, sure: bool = False) -> list[date]:
    return retention.expire(lake, keep_days, noon(today), sure=sure)


@pytest.mark.parametrize("keep_days", [1, 3, 7, 30])
def test_days_beyond_what_is_kept_go_whole(lake: Lake, keep_days: int) -> None:
    days = add(lake, TODAY - 40 * DAY, TODAY)
    assert expire(lake, keep_days, TODAY) == days[:-keep_days]
    assert lake.days() == days[-keep_days:]
    assert expire(lake, keep_days, TODAY) == []
    add(lake, TODAY + DAY, TODAY + DAY)
    assert expire(lake, keep_days, TODAY + DAY) == [days[-keep_days]]


def test_with_the_days_goes_what_is_known_of_them(lake: Lake) -> None:
    add(lake, TODAY, TODAY)
    old_s, new_s = noon(TODAY - 40 * DAY), noon(TODAY - 20 * DAY)
    for to_s in (old_s, new_s):
        to_us = int(to_s) * 1_000_000
        gaps.write(lake.root, Gap("a.example", "a", to_us - 1, to_us, 3, Why.PRESSURE))
    lake.bad.mkdir()
    lake.segments.mkdir()
    for path in (lake.bad / "x.parquet", lake.segments / "x.seg.unreadable"):
        path.touch()
        os.utime(path, (old_s,) * 2)
    kept = lake.segments / "y.seg.unreadable"
    kept.touch()
    os.utime(kept, (new_s,) * 2)
    expire(lake, 30, TODAY)
    assert [gap.to_us for gap in gaps.read(lake.root)] == [new_s * 1e6]
    assert list(lake.segments.iterdir()) == [kept]
    assert list(lake.bad.iterdir()) == []


def test_a_removal_that_was_killed_is_ended(lake: Lake) -> None:
    add(lake, TODAY, TODAY)
    left = lake.events / "_tmp-date=2025-01-01" / "hour=00"
    left.mkdir(parents=True)
    (left / "a-1.parquet").touch()
    expire(lake, 30, TODAY)
    assert [path.name for path in lake.events.iterdir()] == [f"date={TODAY}"]


def test_a_clock_that_is_wrong_takes_nothing_along(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    add(lake, TODAY, TODAY)
    assert expire(lake, 30, TODAY + 400 * DAY) == []
    assert lake.days() == [TODAY]
    assert "is the clock right?" in caplog.text


@pytest.mark.parametrize("ahead", [20, 100, 456])
@pytest.mark.parametrize("keep_days", [7, 30, 400])
def test_events_of_the_wrong_date_do_not_make_it_right(
    lake: Lake, caplog: pytest.LogCaptureFixture, keep_days: int, ahead: int
) -> None:
    """Events of a wrong future date count as the day after the last one."""
    days = add(lake, TODAY - (keep_days - 1) * DAY, TODAY)
    wrong = TODAY + ahead * DAY
    add(lake, wrong, wrong)
    to_us = int(noon(TODAY)) * 1_000_000
    gap = Gap("a.example", "a", to_us, to_us, 3, Why.TORN)
    gaps.write(lake.root, gap)
    assert expire(lake, keep_days, wrong) == days[:1]
    assert expire(lake, keep_days, wrong) == []
    assert lake.days() == [*days[1:], wrong]
    assert gaps.read(lake.root) == [gap]
    assert "is the clock right?" in caplog.text
    caplog.clear()
    add(lake, TODAY + DAY, TODAY + DAY)  # the clock is right again
    assert expire(lake, keep_days, TODAY + DAY) == []
    assert caplog.text == ""


def test_a_clock_that_is_a_little_ahead_takes_a_day_along(lake: Lake) -> None:
    add(lake, TODAY - 29 * DAY, TODAY)
    add(lake, TODAY + 5 * DAY, TODAY + 5 * DAY)
    assert expire(lake, 30, TODAY + 5 * DAY) == [TODAY - 29 * DAY]


def test_a_relay_that_was_off_removes_them_a_week_later(lake: Lake) -> None:
    days = add(lake, TODAY - 29 * DAY, TODAY)
    again = TODAY + 100 * DAY
    add(lake, again, again + 5 * DAY)
    assert expire(lake, 30, again + 5 * DAY) == days[:6]
    add(lake, again + 6 * DAY, again + 6 * DAY)
    assert expire(lake, 30, again + 6 * DAY) == days[6:]


def test_where_little_happens_they_go_later(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    days = add(lake, TODAY - 60 * DAY, TODAY, step=2)
    gone = expire(lake, 30, TODAY)
    assert gone == [day for day in days if day < TODAY - (29 + 6) * DAY]
    assert "is the clock right?" not in caplog.text


def test_somebody_says_that_the_clock_is_right(lake: Lake, settings: Any) -> None:
    now = datetime.fromtimestamp(time.time(), UTC).date()
    days = add(lake, now - 60 * DAY, now - 50 * DAY)
    chosen = dataclasses.replace(settings.RMB.analytics, dir=str(lake.root), keep_days=30)
    settings.RMB = dataclasses.replace(settings.RMB, analytics=chosen)
    out = StringIO()
    with alone(lake):  # holds the lock as a relay's compactor does
        call_command("rmb_analytics", "compact", "--expire", "--json", stdout=out)
    assert json.loads(out.getvalue()) == {"days": [str(day) for day in days]}
    assert lake.days() == []
