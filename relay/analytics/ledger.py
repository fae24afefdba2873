"""The ledger: the computed results, whether they match their events, and where they are.

The result of a table for a period (a day or a month) counts when the ledger names its folder. The
ledger also has a fingerprint of all inputs: the files of events, margins included, the gaps, and
the versions of the job and of the schema. A period is computed again only if its fingerprint has
changed; merging files does not change it.

    CURRENT    the result matches the events
    MISSING    never computed
    OUTDATED   computed from other events, or by an earlier version of the job
    KEPT       computed from events of which some have been deleted since, as old ones are: the
               result is worth more than one computed from the remaining events
    EMPTY      there are no events

A period that is still growing (a month) loses days of its margin meanwhile, and may lose a broken
file. So events are compared day by day: the period is computed again as soon as one day has more
events than before, unless the first of the period's own days have been deleted.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import IO, Final

from django.utils import timezone

from relay.analytics import footers, gaps, origin
from relay.analytics.errors import AnalyticsError, Busy
from relay.analytics.gaps import Gap
from relay.analytics.lake import Lake, LakeFile, fingerprint
from relay.analytics.models import Published, Run, RunState
from relay.analytics.segments import lock
from relay.analytics.spark.catalogue import Job
from relay.analytics.spark.window import Window

HOUR: Final = timedelta(hours=1)

CLAIM_S: Final = 2.0
"""Seconds to wait for the lock of a job, which `note_killed` of another process holds briefly."""

POLL_S: Final = 0.05


class Standing(StrEnum):
    """State of the result of a period, compared to its events."""

    CURRENT = "current"
    MISSING = "missing"
    OUTDATED = "outdated"
    KEPT = "kept"
    EMPTY = "empty"


@dataclasses.dataclass(frozen=True, slots=True)
class Period:
    """One day or month of a job.

    Attributes:
        name: YYYY-MM-DD or YYYY-MM.
        window: days of the period.
        files: files of events that it is computed from, margins included.
        fingerprint: fingerprint of all its inputs.
        standing: state of its result.
    """

    name: str
    window: Window
    files: tuple[LakeFile, ...]
    fingerprint: str
    standing: Standing

    @property
    def due(self) -> bool:
        """Whether it must be computed."""
        return self.standing in (Standing.MISSING, Standing.OUTDATED)


class Listing:
    """Files of events of some days, searched by time. Made once for all jobs."""

    def __init__(self, lake: Lake, since: datetime, until: datetime) -> None:
        self._files = lake.files(since.date(), until.date())
        self._times = [
            datetime(file.date.year, file.date.month, file.date.day, file.hour, tzinfo=UTC)
            for file in self._files
        ]

    def between(self, since: datetime, until: datetime) -> tuple[LakeFile, ...]:
        """Return the files with events of a time span; a file covers the hour from its time on."""
        first = bisect.bisect_right(self._times, since - HOUR)
        return tuple(self._files[first : bisect.bisect_left(self._times, until)])


def periods(
    job: Job, window: Window, lake: Lake, *, again: bool = False, listing: Listing | None = None
) -> list[Period]:
    """Return the periods that a window touches, in order.

    Args:
        job: job of the periods.
        window: days.
        lake: lake of the events.
        again: whether current and kept results count as outdated.
        listing: files of at least the job's span of the window; None: listed here.

    Raises:
        AnalyticsError: a file of gaps or of events cannot be read.
    """
    listing = listing or Listing(lake, *job.span(window))
    lost = read_gaps(lake) if "gaps" in job.inputs else []
    held = _held(job, job.periods(window))
    found = []
    for name, its in zip(job.periods(window), _windows(job, window), strict=True):
        span = job.span(its)
        files = listing.between(*span)
        mark = _mark(job, files, within(lost, *span))
        rows = held.get(name)
        if not files:
            standing = Standing.KEPT if rows else Standing.EMPTY
        elif rows is None or len(rows) < len(job.tables) or _folder_is_gone(rows, lake):
            standing = Standing.MISSING
        elif not again and all(row.fingerprint == mark for row in rows):
            standing = Standing.CURRENT
        else:
            kept = not again and _is_worth_more(rows, files, its)
            standing = Standing.KEPT if kept else Standing.OUTDATED
        found.append(Period(name, its, files, mark, standing))
    return found


def read_gaps(lake: Lake) -> list[Gap]:
    """Return all gaps.

    Raises:
        AnalyticsError: a file cannot be read.
    """
    try:
        return gaps.read(lake.root)
    except (OSError, ValueError) as error:
        raise AnalyticsError(str(error)) from None


def within(lost: Iterable[Gap], since: datetime, until: datetime) -> list[Gap]:
    """Return the gaps that touch a time span."""
    from_us, to_us = (int(each.timestamp()) * 1_000_000 for each in (since, until))
    return [gap for gap in lost if gap.to_us >= from_us and gap.from_us < to_us]


def result_files(lake: Lake, table: str, since: str = "", until: str = "") -> list[Path]:
    """Return the files that together have the results of a table.

    They stay for at least `publishing.KEEP_S` after this call.

    Args:
        lake: lake of the results.
        table: name of the table.
        since: first period; empty for all.
        until: last period, included; empty for all.
    """
    published = Published.objects.filter(table=table).exclude(folder="").order_by("period")
    if since:
        published = published.filter(period__gte=since)
    if until:
        published = published.filter(period__lte=until)
    return [
        path
        for folder in published.values_list("folder", flat=True)
        for path in sorted((lake.results / folder).glob("*.parquet"))
    ]


@contextlib.contextmanager
def claimed(job: Job, lake: Lake, whose: str = "") -> Iterator[None]:
    """Hold the lock of a job, so that no other process computes it; mark its killed runs as failed.

    Args:
        job: job to compute.
        lake: lake of the events.
        whose: name of this process that others see, beside its process id.

    Raises:
        AnotherLake: the results in the database are of another lake.
        Busy: another process computes the job.
        OSError: the cache folder cannot be written.
    """
    origin.assert_not_another(lake)
    lake.cache.mkdir(parents=True, exist_ok=True)
    with _lock(job.name, lake).open("a+") as file:
        if not _locked(file, CLAIM_S):
            raise Busy(_computed_by(job.name, file))
        file.truncate(0)
        file.write(", ".join(filter(None, (str(os.getpid()), whose))))
        file.flush()
        _end_killed(job.name)
        yield


def at_work(lake: Lake, jobs: Iterable[str]) -> list[str]:
    """Return a line for each of some jobs that other processes compute, with the process."""
    found = []
    for job in sorted(jobs):
        with contextlib.suppress(OSError), _lock(job, lake).open("r+") as file:
            if not _locked(file, 0):
                found.append(_computed_by(job, file))
    return found


def note_killed(lake: Lake) -> None:
    """Mark runs whose process has ended as failed; otherwise they stay running until the next run.

    Does nothing if the results are of another lake: its locks are in its own cache folder.
    """
    if origin.another(lake) is not None:
        return
    running = Run.objects.filter(state=RunState.RUNNING).order_by().values_list("job", flat=True)
    for job in running.distinct():
        with contextlib.suppress(FileNotFoundError), _lock(job, lake).open("r+") as file:
            if _locked(file, 0):
                _end_killed(job)


def begin(job: Job, window: Window, master: str) -> Run:
    """Record that a run has begun."""
    now = timezone.now()
    return Run.objects.create(
        name=f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}",
        job=job.name,
        master=master[: Run._meta.get_field("master").max_length],
        first_day=window.first,
        last_day=window.last,
        began_at=now,
    )


def end(run: Run, state: RunState, error: str = "") -> None:
    """Record how a run ended."""
    run.state, run.error, run.ended_at = state, error, timezone.now()
    run.save(update_fields=["state", "error", "ended_at", "periods", "result_rows"])


def _lock(job: str, lake: Lake) -> Path:
    return lake.cache / f"{job}.lock"


def _computed_by(job: str, file: IO[str]) -> str:
    file.seek(0)
    return f"{job} is being computed by process {file.read().strip() or '?'}"


def _locked(file: IO[str], wait_s: float) -> bool:
    """Try to take the lock of a file; it lasts until the file is closed or the process ends."""
    until = time.monotonic() + wait_s
    while not (ours := lock(file.fileno())) and time.monotonic() < until:
        time.sleep(POLL_S)
    return ours


def _end_killed(job: str) -> None:
    """Mark running runs of a job as failed. The caller must hold the lock of the job."""
    Run.objects.filter(job=job, state=RunState.RUNNING).update(
        state=RunState.FAILED, ended_at=timezone.now(), error="the process was killed"
    )


def _windows(job: Job, window: Window) -> list[Window]:
    if job.grain == "day":
        return [Window(day, day) for day in window.days()]
    firsts = [date.fromisoformat(f"{month}-01") for month in window.months()]
    return [job.whole(Window(first, first)) for first in firsts]


def _mark(job: Job, files: Sequence[LakeFile], lost: Sequence[Gap]) -> str:
    told = hashlib.blake2b(digest_size=16)
    told.update(f"{footers.VERSION} {job.version} {fingerprint(files)}".encode())
    for gap in lost:
        told.update(repr(gap).encode())
    return told.hexdigest()


def _held(job: Job, names: Sequence[str]) -> dict[str, list[Published]]:
    """Return the published results of each period."""
    rows = Published.objects.filter(
        table__in=[table.name for table in job.tables], period__gte=names[0], period__lte=names[-1]
    )
    held: dict[str, list[Published]] = {}
    for row in rows:
        held.setdefault(row.period, []).append(row)
    return held


def _folder_is_gone(held: Sequence[Published], lake: Lake) -> bool:
    return any(row.folder and not (lake.results / row.folder).is_dir() for row in held)


def _is_worth_more(held: Sequence[Published], files: Sequence[LakeFile], its: Window) -> bool:
    """Check whether a result was computed from events that a new computation would not have."""
    now = footers.rows_by_day(files)
    least = min(held, key=lambda row: row.event_rows)
    then: dict[str, int] = least.day_rows
    if not then:  # of a release that did not record them
        return sum(now.values()) < least.event_rows
    own = [day for day in then if its.first.isoformat() <= day <= its.last.isoformat()]
    if own and min(own) not in now:
        return True  # old days are deleted first
    if any(rows > then.get(day, 0) for day, rows in now.items()):
        return False
    return any(now.get(day, 0) < rows for day, rows in then.items())
