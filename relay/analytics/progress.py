"""How far a job is, out of Spark's own status, as a line that is written over and over.

    rollup twin_hour   2026-11-01 to 2026-11-30   [############--------]  61 %   0:12

Spark tells the stages it knows of, and more of them come while it works: the bar may go back.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S: Final = 0.25
WIDTH: Final = 20


class Progress:
    """Writes it to a terminal; where there is none, a line for each step that is done."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._quiet = quiet

    def say(self, line: str) -> None:
        """Writes a line between two steps."""
        if not self._quiet:
            self._stream.write(f"{line}\n")
            self._stream.flush()

    @contextlib.contextmanager
    def step(self, session: SparkSession, title: str) -> Iterator[None]:
        """Shows how far Spark is with what is done inside."""
        if self._quiet:
            yield
            return
        began, done = time.monotonic(), threading.Event()
        session.sparkContext.setJobGroup(title, title)
        watcher = threading.Thread(
            target=self._watch, args=(session, title, began, done), name="progress", daemon=True
        )
        if self._live:
            watcher.start()
        try:
            yield
        finally:
            done.set()
            if self._live:
                watcher.join()
        self._stream.write(f"{self._start()}{title}   done in {_clock(began)}\n")
        self._stream.flush()

    def _watch(
        self, session: SparkSession, title: str, began: float, done: threading.Event
    ) -> None:
        from py4j.protocol import Py4JError

        while not done.wait(EVERY_S):
            try:
                part = fraction(session, title)
            except (OSError, Py4JError):
                return  # Java is gone, which the step itself tells
            bar = ("#" * int(part * WIDTH)).ljust(WIDTH, "-")
            self._stream.write(f"\r{title}   [{bar}] {part:>4.0%}   {_clock(began)} ")
            self._stream.flush()

    def _start(self) -> str:
        return "\r\x1b[K" if self._live else ""


def fraction(session: SparkSession, group: str) -> float:
    """The part of the tasks Spark knows of in a group of jobs that is done."""
    tracker = session.sparkContext.statusTracker()
    tasks = finished = 0
    for job in tracker.getJobIdsForGroup(group):
        known = tracker.getJobInfo(job)
        for stage in known.stageIds if known else ():
            told = tracker.getStageInfo(stage)
            if told is not None:
                tasks += told.numTasks
                finished += told.numCompletedTasks
    return finished / tasks if tasks else 0.0


def _clock(began: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    return f"{minutes}:{seconds:02}"
