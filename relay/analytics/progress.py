"""Progress of a job from Spark's status, as a line that is written repeatedly.

    rollup twin_hour   2026-11-01 to 2026-11-30   [############--------]  61 %   0:12

Spark reports only the stages it knows of, and more are added while it works: the bar may go back.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERY_S: Final = 0.25
WIDTH: Final = 20


class Progress:
    """Display of the progress on a terminal; otherwise, a line for each finished step.

    A phase (short work before a step) is shown as a line when it begins.
    """

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or _terminal() or sys.stderr
        self._live = self._stream.isatty()
        self._quiet = quiet

    def say(self, line: str) -> None:
        """Write a line between two steps."""
        if not self._quiet:
            self._write(f"{line}\n")

    @contextlib.contextmanager
    def phase(self, title: str) -> Iterator[None]:
        """Show a title and the elapsed time of the block, whose length is not known."""
        if self._quiet or not self._live:
            self.say(title)
            yield
            return
        began = time.monotonic()
        try:
            with self._watched(lambda: f"{self._start()}{title}   {_clock(began)} "):
                yield
        finally:
            self._write(self._start())

    @contextlib.contextmanager
    def step(self, session: SparkSession, title: str) -> Iterator[None]:
        """Show how much of the block Spark has done."""
        if self._quiet:
            yield
            return
        from py4j.protocol import Py4JError

        def shown() -> str | None:
            try:
                part = fraction(session, title)
            except (OSError, Py4JError):
                return None  # Java has ended, which the step itself reports
            bar = ("#" * int(part * WIDTH)).ljust(WIDTH, "-")
            return f"\r{title}   [{bar}] {part:>4.0%}   {_clock(began)} "

        began = time.monotonic()
        session.sparkContext.setJobGroup(title, title)
        with self._watched(shown):
            yield
        self._write(f"{self._start()}{title}   done in {_clock(began)}\n")

    @contextlib.contextmanager
    def _watched(self, shown: Callable[[], str | None]) -> Iterator[None]:
        """Write what `shown` returns again and again, until it returns None."""
        if not self._live:
            yield
            return
        done = threading.Event()

        def watch() -> None:
            while not done.wait(EVERY_S) and (text := shown()) is not None:
                self._write(text)

        self._write(shown() or "")
        watcher = threading.Thread(target=watch, name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _start(self) -> str:
        return "\r\x1b[K" if self._live else ""


def _terminal() -> TextIO | None:
    """Return a copy of standard error if it is a terminal, unaffected by later redirections."""
    if not sys.stderr.isatty():
        return None
    return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding)


def fraction(session: SparkSession, group: str) -> float:
    """Return the finished fraction of the tasks that Spark knows of in a group of jobs."""
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
