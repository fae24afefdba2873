"""The compactor: it converts segments to Parquet, merges small files, and removes old days.

    segments/  -> conversion -> events/  -> merging, when an hour is quiet -> retention
       of the dead: backlog.close_dead                     too many: backlog.keep_within
    Redis      -> lattice_intake -> events/

One compactor at a time works on a lake: a child process of the relay, or `manage.py rmb_analytics
compact`. Its lock is an flock, which the kernel releases however the process ends. All of its state
is in the folders, so the next compactor continues where a killed one stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Iterator
from datetime import date
from typing import Final

from redis import Redis

from relay.analytics import backlog, lattice_intake, merging, retention
from relay.analytics.conversion import convert
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.analytics.segments import lock

LOCK: Final = "compactor.lock"

logger = logging.getLogger("relay.analytics.compactor")


class AnotherCompactorError(AnalyticsError):
    """Another process is compacting this lake."""


@dataclasses.dataclass(slots=True)
class Work:
    """Work that one call did.

    Attributes:
        segments: number of segments converted to Parquet, or put aside.
        rows: number of rows in them, and of rows of the lattice.
        closed: number of segments of dead recorders that were closed.
        dropped: number of segments dropped because there was no room for them.
        merged: number of merged hours.
        days: number of removed days.
        unreadable: errors of files that cannot be read, each reported once.
        trouble: why not all work could be done, such as a full disk; empty if it was.
    """

    segments: int = 0
    rows: int = 0
    closed: int = 0
    dropped: int = 0
    merged: int = 0
    days: int = 0
    unreadable: list[str] = dataclasses.field(default_factory=list)
    trouble: str = ""


class Compactor:
    """Compactor of one lake; its methods are called in a loop, or once by the command."""

    def __init__(
        self,
        lake: Lake,
        *,
        keep_days: int,
        segments_max_bytes: int,
        flush_s: float = 1.0,
        stopping: Callable[[], bool] = lambda: False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._lake = lake
        self._keep_days = keep_days
        self._segments_max_bytes = segments_max_bytes
        self._silence_s = backlog.silence_s(flush_s)
        self._stopping = stopping
        self._wall = wall
        self._unmerged: set[tuple[date, int]] | None = None
        """Hours with more than one file, as far as known; None: the lake was not searched yet."""
        self._told: set[str] = set()
        """Errors of unreadable files that were reported already."""

    def convert(self) -> Work:
        """Convert every closed segment to Parquet, after closing the segments of dead recorders."""
        work = Work()
        try:
            work.closed = len(backlog.close_dead(self._lake, self._silence_s))
            for path in backlog.closed(self._lake):
                if self._stopping():
                    return work
                with self._lake.changing():
                    done = convert(self._lake, path)
                work.segments += 1
                work.rows += done.rows
                if self._unmerged is not None:
                    self._unmerged.update(done.hours)
        except OSError as error:
            work.trouble = f"segments wait: {error}"
        try:
            work.dropped = backlog.keep_within(self._lake, self._segments_max_bytes)
        except OSError as error:
            work.trouble = work.trouble or f"segments cannot be dropped: {error}"
        return work

    def take_in(self, client: Redis, relay: str) -> Work:
        """Convert the events that processes of a lattice put into Redis to Parquet.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        work = Work()
        try:
            for rows, hours in lattice_intake.take_in(self._lake, client, relay):
                work.rows += rows
                if self._unmerged is not None:
                    self._unmerged.update(hours)
                if self._stopping():
                    break
        except OSError as error:
            work.trouble = f"events of the lattice wait: {error}"
        return work

    def merge(self) -> Work:
        """Merge the files of quiet hours, and remove files that were replaced long enough ago."""
        work = Work()
        lake = self._lake
        try:
            if self._unmerged is None:
                hours = {(day, hour) for day in lake.days() for hour in lake.hours(day)}
                self._unmerged = {each for each in hours if len(lake.present(*each)) > 1}
            for day, hour in sorted(self._unmerged):
                if self._stopping():
                    break
                with lake.changing():
                    self._merge_hour(work, day, hour)
        except OSError as error:
            work.trouble = f"hours stay as they are: {error}"
        return work

    def _merge_hour(self, work: Work, day: date, hour: int) -> None:
        lake = self._lake
        try:
            if merging.is_quiet(lake, day, hour, self._wall()):
                work.merged += merging.merge(lake, day, hour) is not None
            waiting = merging.remove_replaced(lake, day, hour, self._wall())
        except AnalyticsError as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                work.unreadable.append(str(error))
            return
        if self._unmerged is not None and not waiting and len(lake.present(day, hour)) < 2:
            self._unmerged.discard((day, hour))

    def retain(self) -> Work:
        """Remove the days that are older than the retention period."""
        work = Work()
        try:
            with self._lake.changing():
                gone = retention.expire(self._lake, self._keep_days, self._wall())
            work.days = len(gone)
        except OSError as error:
            work.trouble = f"old days stay: {error}"
        return work


@contextlib.contextmanager
def alone(lake: Lake) -> Iterator[None]:
    """Hold the compactor lock of a lake.

    Raises:
        AnotherCompactorError: another process holds it.
    """
    lake.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(lake.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not lock(file):
            raise AnotherCompactorError(
                f"{lake.root}: another compactor is at work; a relay that records has its own"
            )
        yield
    finally:
        os.close(file)
