"""The daily schedule that computes the jobs by itself."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from relay.analytics import daily, days, ledger, tasks
from relay.analytics.daily import Tried
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.analytics.spark.catalogue import JOBS
from relay.ops import background
from tests.support.relay_process import migrated_folder
from tests.support.waiting import wait_until

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TODAY = "2026-11-21"


@pytest.fixture
def lake(tmp_path: Path, settings: Any) -> Lake:
    """Return a lake with one day of events, and set the time of the jobs to two o'clock."""
    (tmp_path / "events" / "date=2026-11-20").mkdir(parents=True)
    chosen = dataclasses.replace(settings.RMB.analytics, dir=str(tmp_path), daily_at="02:00")
    settings.RMB = dataclasses.replace(settings.RMB, analytics=chosen)
    assert begin(NOON - timedelta(days=1)) is None, "the first start waits for its hour"
    return Lake(tmp_path)


def does(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """Set the program that runs in place of the jobs."""
    monkeypatch.setattr(daily, "COMMAND", ("-c", program))


def begin(now: datetime = NOON) -> Tried | None:
    return daily.begin(now, threading.Event())


def test_a_first_start_waits_for_its_hour(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    does(monkeypatch, "")
    two = NOON.replace(hour=2)
    for now in (NOON, two - timedelta(seconds=30), two):
        shutil.rmtree(lake.cache)
        due = daily.next_at(now, Tried())
        assert due == (two if now < two else two + timedelta(days=1))
        assert begin(now) is None
        assert daily.next_at(now, daily.last_tried(lake)) == due
        assert begin(due - timedelta(seconds=1)) is None
        done = begin(due + timedelta(seconds=30))
        assert done is not None and done.done


def test_it_is_due_once_a_day(lake: Lake) -> None:
    two = NOON.replace(hour=2)
    assert daily.next_at(NOON, Tried("2026-11-20", 1, done=True)) == two
    assert daily.next_at(NOON, Tried(TODAY, 1, done=True)) == two + timedelta(days=1)


def test_a_failure_is_tried_again_twice(lake: Lake) -> None:
    at = NOON.isoformat()
    assert daily.next_at(NOON, Tried(TODAY, 2, at)) == NOON + timedelta(hours=1)
    assert daily.next_at(NOON, Tried(TODAY, 3, at)) == NOON.replace(hour=2) + timedelta(days=1)


def test_never(lake: Lake, settings: Any) -> None:
    chosen = dataclasses.replace(settings.RMB.analytics, daily_at="")
    settings.RMB = dataclasses.replace(settings.RMB, analytics=chosen)
    assert daily.next_at(NOON, Tried()) is None
    assert begin() is None


def test_it_looks_at_the_days_before(lake: Lake) -> None:
    for _, window in daily.wanted(NOON):
        assert (window.first, window.last) == (date(2026, 11, 18), date(2026, 11, 20))
    assert "audit" in {job.name for job, _ in daily.wanted(NOON)}


def test_it_is_done_once(lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    does(monkeypatch, f"open({str(tmp_path / 'done')!r}, 'a').write('x')")
    assert begin(NOON.replace(hour=1)) is None
    tried = begin()
    assert tried == Tried(TODAY, 1, NOON.isoformat(), done=True) == daily.last_tried(lake)
    assert begin() is None
    assert (tmp_path / "done").read_text() == "x"
    assert begin(NOON + timedelta(days=1)) is not None


def test_why_it_failed_is_kept(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    does(monkeypatch, "import sys; sys.exit('noise\\nCommandError: no Java')")
    tried = begin()
    assert tried is not None and not tried.done
    assert daily.last_tried(lake).error == "CommandError: no Java"
    assert begin(NOON + timedelta(minutes=59)) is None
    again = begin(NOON + timedelta(hours=1))
    assert again is not None and again.tries == 2


def test_a_job_that_somebody_computes_is_no_failure(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real command retries a job in use minutes later, and does the other jobs at once."""
    settle(tmp_path, lake, monkeypatch)
    with (lake.cache / "rollup.lock").open("w") as by_hand:
        fcntl.flock(by_hand, fcntl.LOCK_EX)
        by_hand.write("4711")
        by_hand.flush()
        tried = begin()
    assert tried is not None and tried.busy and not tried.done
    assert tried.tries == 0
    assert tried.error == "CommandError: rollup is being computed by process 4711"
    last = (lake.cache / "graph.lock").read_text()
    assert last.endswith(f", {daily.NAME}"), "the last job did not get its turn"
    assert begin(NOON + timedelta(minutes=4)) is None
    done = begin(NOON + daily.BUSY_AFTER)
    assert done is not None and (done.done, done.busy, done.tries, done.error) == (
        *(True, False, 1),
        "",
    )


def settle(folder: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up an installation on this lake, for commands that run as processes of their own."""
    shutil.copytree(migrated_folder(), folder / "data")
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "rmbsite.settings")
    monkeypatch.setenv("RMB_DATA__DIR", str(folder / "data"))
    monkeypatch.setenv("RMB_ANALYTICS__DIR", str(lake.root))


@contextlib.contextmanager
def by_hand(*more: str, job: str = "matrix") -> Iterator[subprocess.Popen[str]]:
    """Start `run` as an operator does in a shell."""
    process = subprocess.Popen(
        [*(sys.executable, "-m", "django", "rmb_analytics", "run", job), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.django_db
def test_who_types_a_job_waits_for_the_schedule(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settle(tmp_path, lake, monkeypatch)
    busy = f"matrix is being computed by process {os.getpid()}, the relay's daily schedule"
    waiting = f"{busy}: waiting for at most 60 minutes (--wait)\n"
    with contextlib.ExitStack() as until_free:
        until_free.enter_context(ledger.claimed(JOBS["matrix"], lake, daily.NAME))
        with by_hand() as process:
            assert process.stderr is not None and process.stderr.readline() == waiting
            process.send_signal(signal.SIGINT)
            printed, complaints = process.communicate(timeout=30)
            assert (printed, process.returncode) == ("", 1)
            assert complaints.removeprefix("CommandError: ").removeprefix("matrix: ") == (
                "interrupted\n"
            )
        with by_hand("--wait", "0") as process:
            assert process.communicate(timeout=30) == ("", f"CommandError: {busy}\n")
            assert process.returncode == os.EX_TEMPFAIL
        with by_hand() as process:
            assert process.stderr is not None and process.stderr.readline() == waiting
            until_free.close()
            assert process.communicate(timeout=30) == (
                *("matrix       1 without events\n", "matrix: looking for days to compute\n"),
            )
            assert process.returncode == 0


@pytest.mark.django_db
def test_a_run_says_at_once_that_another_is_at_work(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settle(tmp_path, lake, monkeypatch)
    with ledger.claimed(JOBS["graph"], lake, daily.NAME), by_hand(job="top") as process:
        printed, told = process.communicate(timeout=30)
    assert (printed, process.returncode) == ("top          1 without events\n", 0)
    assert told.splitlines() == [
        f"graph is being computed by process {os.getpid()}, the relay's daily schedule: "
        "both runs take longer",
        "top: looking for days to compute",
    ]


def test_failures_before_still_count_after_it_was_busy(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = NOON
    for code, tries in ((1, 1), (75, 1), (75, 1), (1, 2), (75, 2), (1, 3)):
        does(monkeypatch, f"raise SystemExit({code})")
        tried = begin(at)
        assert tried is not None and (tried.tries, tried.busy) == (tries, code == 75)
        at = daily.next_at(at, tried) or at
    assert at == NOON.replace(hour=2) + timedelta(days=1)


def test_without_events_nothing_is_begun(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    does(monkeypatch, "raise SystemExit('begun')")
    (lake.events / "date=2026-11-20").rmdir()
    assert begin() is None


def test_a_stop_ends_it_and_nobody_else_begins(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    does(monkeypatch, f"import time; open({str(started)!r}, 'w'); time.sleep(600)")
    stopping, found = threading.Event(), []
    worker = threading.Thread(target=lambda: found.append(daily.begin(NOON, stopping)))
    worker.start()
    wait_until(started.exists)
    assert begin(NOON + timedelta(hours=2)) is None  # it would be due, but is being done
    stopping.set()
    worker.join(30)
    assert [tried.error for tried in found] == ["the relay was stopped"]


@pytest.mark.django_db
def test_the_task_says_how_it_went(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    background.stopping.clear()
    does(monkeypatch, "raise SystemExit('CommandError: no Java')")
    before = datetime.now(UTC).replace(hour=0, minute=0) - timedelta(days=1)
    monkeypatch.setattr(daily, "next_at", lambda now, tried: before)
    with caplog.at_level(logging.INFO, "relay.analytics.tasks"):
        tasks.compute_daily()
        does(monkeypatch, "import sys; print('rollup is busy', file=sys.stderr); sys.exit(75)")
        tasks.compute_daily()
        does(monkeypatch, "pass")
        tasks.compute_daily()
    assert [record.getMessage() for record in caplog.records] == [
        "the jobs of analytics failed, try 1: CommandError: no Java",
        "jobs of analytics wait 5 minutes: rollup is busy",
        "the jobs of analytics are done",
    ]


def test_days_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(days, "now", lambda: NOON)
    parser = argparse.ArgumentParser(exit_on_error=False)
    days.add_arguments(parser)
    today = NOON.date()
    for text, first in (("2026-11-05", date(2026, 11, 5)), ("2026-02", date(2026, 2, 1))):
        assert parser.parse_args(["--from", text]).first == first
    assert parser.parse_args(["--to", "2026-02"]).last == date(2026, 2, 28)
    assert today - parser.parse_args(["--from", "7d"]).first <= timedelta(days=7)
    for wrong in ("2026-13", "x", "٣d", "9999999999d", ""):
        with pytest.raises(argparse.ArgumentError, match="invalid day"):
            parser.parse_args(["--from", wrong])


def test_the_window_ends_yesterday_unless_said_otherwise() -> None:
    first, last = date(2026, 3, 1), date(2026, 3, 4)
    window = days.window(first, last)
    assert (window.first, window.last) == (first, last)
    window = days.window(first, None)
    assert window.first == first and window.last < datetime.now(UTC).date() + timedelta(days=1)
    window = days.window(None, last)
    assert (window.first, window.last) == (last, last)
    with pytest.raises(AnalyticsError, match="is before"):
        days.window(last, first)
