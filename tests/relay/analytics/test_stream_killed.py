"""`rmb_analytics stream` killed with -9 between its two commits, and started again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.relay.analytics.stream_feed import DAY, Feed, queried
from tests.relay.analytics.stream_process import (
    COMMAND,
    START_S,
    Counted,
    kill,
    said,
    settings_for,
    started,
    url_of,
)
from tests.support.relay_process import run_command
from tests.support.waiting import wait_until


def test_every_event_counts_once_although_it_was_killed(
    tmp_path: Path, django_db_blocker: Any
) -> None:
    url = url_of(tmp_path)
    with django_db_blocker.unblock():
        counted = Counted(url, tmp_path)
        try:
            _kill_and_go_on(tmp_path, url, counted)
        finally:
            counted.close()


def _kill_and_go_on(folder: Path, url: str, counted: Counted) -> None:
    feed = Feed(folder)
    settings = settings_for(feed, url)
    with started(folder, settings, *COMMAND, "--from", str(DAY), "--every", "0.1") as process:
        feed.bring(2)
        wait_until(lambda: counted.batch() >= 0, START_S, lambda: said(folder))
        first = counted.batch()
        feed.bring(8)
        # The database has just committed; Spark records that some tens of milliseconds later.
        wait_until(lambda: counted.batch() > first, START_S, lambda: said(folder))
        kill(process)
    killed_at = counted.batch()
    feed.bring(99)
    done = run_command(folder, *COMMAND, "--once", settings=settings, timeout_s=START_S)
    assert done.returncode == 0, done.stderr
    batches = [json.loads(line) for line in done.stdout.splitlines()]
    assert counted.sums() == queried(feed.lake)
    assert counted.batch() > killed_at
    assert all(each["new"] == (each["batch"] > killed_at) for each in batches)
