"""`rmb_analytics stream` killed with -9 between its two commits, and started again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from django.db import ConnectionHandler

from rmbsite.database import settings_of
from tests.relay.analytics.stream_feed import DAY, Feed, Sums, queried
from tests.support.relay_process import ROOT, command_environment, migrated_folder
from tests.support.waiting import wait_until

START_S = 120.0
SUMS = ("n", "size_bytes", "latency_us", "late")


class Counted:
    """What the database says."""

    def __init__(self, url: str, folder: Path) -> None:
        self._connection: Any = ConnectionHandler({"default": settings_of(url, folder)})["default"]
        self._connection.inc_thread_sharing()

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(question)
            return list(cursor.fetchall())

    def batch(self) -> int:
        found = self.rows("SELECT batch FROM relay_analytics_streamstate")
        return int(found[0][0]) if found else -1

    def sums(self) -> Sums:
        names = ", ".join(("minute", "relay", "kind", "reason", "remote", *SUMS))
        return {
            (_us(row[0]), *row[1:5]): Counter(dict(zip(SUMS, row[5:], strict=True)))
            for row in self.rows(f"SELECT {names} FROM relay_analytics_liveminute")
        }

    def close(self) -> None:
        self._connection.close()


def test_every_event_counts_once_although_it_was_killed(
    tmp_path: Path, django_db_blocker: Any
) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    shutil.copy(migrated_folder() / "relay.sqlite3", tmp_path / "data" / "relay.sqlite3")
    url = f"sqlite:///{tmp_path}/data/relay.sqlite3"
    with django_db_blocker.unblock():
        counted = Counted(url, tmp_path)
        try:
            _kill_and_go_on(tmp_path, url, counted)
        finally:
            counted.close()


def _kill_and_go_on(folder: Path, url: str, counted: Counted) -> None:
    feed = Feed(folder)
    settings = {
        "analytics.dir": str(feed.lake.events.parent),
        "analytics.driver_memory": "512m",
        "analytics.master": "local[2]",
        "analytics.cores": "1",
        # Its Java runs twice, and not for long.
        "analytics.spark": "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
        "database.url": url,
        "redis.url": "redis://127.0.0.1:1",
    }
    command = ["rmb_analytics", "stream", "--json"]
    with _started(folder, settings, *command, "--from", str(DAY), "--every", "0.1") as process:
        feed.bring(2)
        wait_until(lambda: counted.batch() >= 0, START_S, lambda: _said(folder))
        first = counted.batch()
        feed.bring(8)
        # Committed here this moment; Spark notes it some tens of milliseconds later.
        wait_until(lambda: counted.batch() > first, START_S, lambda: _said(folder))
        _kill(process)
    killed_at = counted.batch()
    feed.bring(99)
    done = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *command, "--once"],
        cwd=folder,
        env=command_environment(folder, settings),
        capture_output=True,
        text=True,
        timeout=START_S,
    )
    assert done.returncode == 0, done.stderr
    batches = [json.loads(line) for line in done.stdout.splitlines()]
    assert counted.sums() == queried(feed.lake)
    assert counted.batch() > killed_at
    assert all(each["new"] == (each["batch"] > killed_at) for each in batches)


@contextmanager
def _started(
    folder: Path, settings: dict[str, str], *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            cwd=folder,
            env=command_environment(folder, settings),
            stdout=said,
            stderr=said,
        )
        try:
            yield process
        finally:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """At once; its Java ends by itself when it finds nobody at the other end."""
    if process.poll() is not None:
        return
    java = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(java, timeout=30)
    for each in left:
        each.kill()
    assert not left


def _said(folder: Path) -> str:
    return (folder / "said").read_text(errors="replace")


def _us(minute: Any) -> int:
    return round(minute.timestamp()) * 1_000_000
