"""A real `rmb_analytics stream` process on a lake that fills, and the figures that it counted."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from django.db import ConnectionHandler

from rmbsite.database import settings_of
from tests.relay.analytics.stream_feed import Feed, Sums
from tests.support import frugal_spark
from tests.support.forking import Forked
from tests.support.relay_process import command_environment, migrated_folder

COMMAND = ("rmb_analytics", "stream", "--json")
START_S = 120.0
SUMS = ("n", "size_bytes", "latency_us", "late")


def url_of(folder: Path) -> str:
    """Create a database in this folder and return its URL."""
    (folder / "data").mkdir(mode=0o700)
    shutil.copy(migrated_folder() / "relay.sqlite3", folder / "data" / "relay.sqlite3")
    return f"sqlite:///{folder}/data/relay.sqlite3"


def settings_for(feed: Feed, url: str) -> dict[str, str]:
    """Return settings for a small Spark on this lake and database."""
    return {
        "analytics.dir": str(feed.lake.events.parent),
        "analytics.driver_memory": "512m",
        "analytics.master": "local[2]",
        "analytics.cores": "1",
        "analytics.spark": frugal_spark.SETTING,
        "database.url": url,
        "redis.url": "redis://127.0.0.1:1",
    }


class Counted:
    """The figures in the database."""

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


@contextmanager
def started(
    folder: Path, settings: dict[str, str], *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the process as leader of a group of its own, and kill it with -9 at the end."""
    with (folder / "said").open("wb") as output:
        process = Forked(
            arguments,
            cwd=folder,
            env=command_environment(folder, settings),
            stdout=output,
            stderr=output,
            process_group=0,
        )
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process at once; its Java process ends by itself when its connection breaks."""
    if process.poll() is not None:
        return
    java = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, left = psutil.wait_procs(java, timeout=30)
    for each in left:
        each.kill()
    assert not left


def said(folder: Path) -> str:
    """Return all that the process wrote."""
    return (folder / "said").read_text(errors="replace")


def _us(minute: Any) -> int:
    return round(minute.timestamp()) * 1_000_000
