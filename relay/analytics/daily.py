"""What is computed every day without anybody asking: all jobs, for the days before.

Yesterday, and the days before it once more, since events arrive late and sessions end later than
they begin: the ledger lets through what changed. Celery's schedule asks once a minute whether it is
time (`begin`); the work is done by a process of its own, so that no Java runs inside Celery, at a
lower priority than the relay's. A file beside Spark's own keeps what was tried.
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
"""Looked at every day. `backfill` finds what changed before them."""

LEAST_KEPT_OF_MONTH: Final = 31 + DAYS
"""Days of events so that a month is whole when it is looked at last."""

LEAST_KEPT: Final = LEAST_KEPT_OF_MONTH + max(job.reads_before.days for job in JOBS.values())
"""... and what is read before it, too."""

TRIES: Final = 3
AGAIN_AFTER: Final = timedelta(hours=1)

BUSY_AFTER: Final = timedelta(minutes=5)
"""When jobs are looked at again that another process was computing. That is no failure and counts
as no try, however often it comes; the next day begins anew."""

NAME: Final = "the relay's daily schedule"
"""What others are told who is computing a job."""

COMMAND: Final = ("-m", "django", "rmb_analytics", "schedule", "--now", "--quiet")
POLL_S: Final = 1.0
STOP_S: Final = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Tried:
    """What was tried last.

    At the first start of all it only says with which day that began.

    Attributes:
        day: on which it was due.
        tries: of that day.
        at: when the latest began; empty before the first.
        done: whether it went well.
        error: what went wrong.
        busy: whether nothing did, but that another process is computing one of the jobs.
    """

    day: str = ""
    tries: int = 0
    at: str = ""
    done: bool = False
    error: str = ""
    busy: bool = False


def wanted(now: datetime) -> list[tuple[Job, Window]]:
    """The jobs, and the days each looks at."""
    yesterday = now.date() - timedelta(days=1)
    return [(job, Window(yesterday - timedelta(days=DAYS - 1), yesterday)) for job in JOBS.values()]


def next_at(now: datetime, tried: Tried) -> datetime | None:
    """When it is due: a time that is past means now. None: never."""
    if not settings.RMB.analytics.daily_at:
        return None
    due = datetime.combine(
        now.date(), time.fromisoformat(settings.RMB.analytics.daily_at), tzinfo=UTC
    )
    if not tried.day and due <= now:
        return due + timedelta(days=1)  # the first start: nobody waits for what was before it
    if tried.day != now.date().isoformat():
        return due
    if tried.busy:
        return datetime.fromisoformat(tried.at) + BUSY_AFTER
    if tried.done or tried.tries >= TRIES or not tried.at:
        return due + timedelta(days=1)
    return datetime.fromisoformat(tried.at) + AGAIN_AFTER


def begin(now: datetime, stopping: threading.Event) -> Tried | None:
    """Does it if it is time, nobody else does, and there is anything to compute. Blocks meanwhile.

    Args:
        now: UTC.
        stopping: ends it early when set.

    Returns:
        How it went; None when it was not done.
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
        before = last_tried(lake)  # somebody may just have done it
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
    """What was tried last; nothing, when nobody knows."""
    try:
        return Tried(**json.loads(_file(lake).read_text()))
    except (OSError, ValueError, TypeError):
        return Tried()


def _run(stopping: threading.Event) -> tuple[int, str]:
    """Runs the command; its exit code, and what it says when it fails, in a line."""
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
