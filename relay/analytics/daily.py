"""The daily schedule: all jobs are computed for the latest days, without a request.

Each day, the jobs cover yesterday and the days before it again, because events arrive late and
sessions end after they begin; the ledger selects the days whose events have changed. Celery's
schedule calls `begin` once a minute, which checks whether a run is due. A separate process does the
work, at a lower priority than the relay's, so that no Java runs inside Celery. A file in the cache
folder, beside Spark's own, records the last attempt.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Final

from django.conf import settings

from relay.analytics.lake import Lake
from relay.analytics.segments import lock
from relay.analytics.spark.catalogue import JOBS, Job
from relay.analytics.spark.window import Window

DAYS: Final = 3
"""Number of days that the schedule covers. `backfill` finds changes of earlier days."""

LEAST_KEPT_OF_MONTH: Final = 31 + DAYS
"""Minimum number of days to keep events, so that a month is complete when it is last computed."""

LEAST_KEPT: Final = LEAST_KEPT_OF_MONTH + max(job.reads_before.days for job in JOBS.values())
"""The same, including the days that jobs read before a period."""

TRIES: Final = 3
AGAIN_AFTER: Final = timedelta(hours=1)

BUSY_AFTER: Final = timedelta(minutes=5)
"""Time until jobs that another process is computing are attempted again. That is not a failure and
does not count as an attempt, however often it happens; the next day starts with new attempts."""

NAME: Final = "the relay's daily schedule"
"""Name of this process that other processes see while it computes a job."""

COMMAND: Final = ("-m", "django", "rmb_analytics", "schedule", "--now", "--quiet")
POLL_S: Final = 1.0
STOP_S: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Tried:
    """The last attempt.

    After the very first start it has only the day with which the schedule begins.

    Attributes:
        day: day on which it was due.
        tries: number of attempts of that day.
        at: start of the latest attempt; empty before the first.
        done: whether it succeeded.
        error: why it failed.
        busy: whether it only stopped because another process is computing one of the jobs.
    """

    day: str = ""
    tries: int = 0
    at: str = ""
    done: bool = False
    error: str = ""
    busy: bool = False


def wanted(now: datetime) -> list[tuple[Job, Window]]:
    """Return the jobs, and the days that each one covers."""
    yesterday = now.date() - timedelta(days=1)
    return [(job, Window(yesterday - timedelta(days=DAYS - 1), yesterday)) for job in JOBS.values()]


def next_at(now: datetime, tried: Tried) -> datetime | None:
    """Return when the next run is due; a past time means now, None means never."""
    if not settings.RMB.analytics.daily_at:
        return None
    due = datetime.combine(
        now.date(), time.fromisoformat(settings.RMB.analytics.daily_at), tzinfo=UTC
    )
    if not tried.day and due <= now:
        return due + timedelta(days=1)  # the first start: nothing is due for past times
    if tried.day != now.date().isoformat():
        return due
    if tried.busy:
        return datetime.fromisoformat(tried.at) + BUSY_AFTER
    if tried.done or tried.tries >= TRIES or not tried.at:
        return due + timedelta(days=1)
    return datetime.fromisoformat(tried.at) + AGAIN_AFTER


def begin(now: datetime, stopping: threading.Event) -> Tried | None:
    """Run the jobs if they are due, no other process runs them, and there are events.

    Blocks until they are done.

    Args:
        now: current time, UTC.
        stopping: event that ends the run early.

    Returns:
        The attempt; None if no run was started.
    """
    lake = Lake.configured()
    if importlib.util.find_spec("pyspark") is None or not lake.days():
        return None
    tried = last_tried(lake)
    due = next_at(now, tried)
    if due is not None and not tried.day:
        with _alone(lake) as ours:
            if ours and not last_tried(lake).day:
                _note(lake, Tried((due.date() - timedelta(days=1)).isoformat()))
        return None
    if due is None or due > now:
        return None
    with _alone(lake) as ours:
        if not ours:
            return None
        before = last_tried(lake)  # another process may have run it since
        due = next_at(now, before)
        if due is None or due > now:
            return None
        day = now.date().isoformat()
        failed = before.tries if before.day == day else 0
        trying = Tried(day, failed + 1, now.isoformat(timespec="seconds"), error="it did not end")
        _note(lake, trying)
        code, error = _run(stopping)
        tried = dataclasses.replace(trying, done=not error, error=error)
        if code == os.EX_TEMPFAIL:
            tried = dataclasses.replace(tried, tries=failed, busy=True)
        _note(lake, tried)
        return tried


def last_tried(lake: Lake) -> Tried:
    """Return the last attempt; an empty one if none is recorded."""
    try:
        return Tried(**json.loads(_file(lake).read_text()))
    except (OSError, ValueError, TypeError):
        return Tried()


def _run(stopping: threading.Event) -> tuple[int, str]:
    """Run the command; return its exit code, and the last line of its error if it fails."""
    child = subprocess.Popen(
        [sys.executable, *COMMAND],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    said = ""
    while True:
        try:
            _, said = child.communicate(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            if stopping.is_set():
                child.terminate()
                try:
                    child.communicate(timeout=STOP_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.communicate()
                return child.returncode, "the relay was stopped"
            continue
        if child.returncode == 0:
            return 0, ""
        told = said.strip().splitlines() or [f"exit code {child.returncode}"]
        return child.returncode, told[-1]


@contextlib.contextmanager
def _alone(lake: Lake) -> Iterator[bool]:
    lake.cache.mkdir(parents=True, exist_ok=True)
    with (lake.cache / "daily.lock").open("a") as file:
        yield lock(file.fileno())


def _note(lake: Lake, tried: Tried) -> None:
    draft = _file(lake).with_suffix(".draft")
    draft.write_text(json.dumps(dataclasses.asdict(tried)))
    draft.replace(_file(lake))


def _file(lake: Lake) -> Path:
    return lake.cache / "daily.json"
