"""What is computed, what of it still holds, and where readers find it.

The result of a table for a period (a day, or a month) counts when the ledger names its folder. With
it stands a fingerprint of all it was made of: the files of events, margins included, the gaps, the
version of the job and of the schema. A period is computed again when its fingerprint is another
one, and only then; merging files leaves it as it is.

    CURRENT    has the result of just these events
    MISSING    never computed
    OUTDATED   computed of other events, or by an earlier version of the job
    KEPT       computed of events that are gone: old ones are deleted by and by, and what was made
               of them is worth more than what could be made of the rest
    EMPTY      there are no events

A period that still grows (a month) loses days of its margin meanwhile, and may lose a broken file:
so events are compared day by day. One day with more of them than before is reason enough to compute
it again, unless the period's own days have begun to go.
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
"""So long a job's lock is waited for: `note_killed` of another process holds it for a moment."""

POLL_S: Final = 0.05


class Standing(StrEnum):
    """How the result of a period stands to its events."""

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
        window: its days.
        files: of events it is made of, margins included.
        fingerprint: of all it is made of.
        standing: whether there is a result, and of what.
    """

    name: str
    window: Window
    files: tuple[LakeFile, ...]
    fingerprint: str
    standing: Standing

    @property
    def due(self) -> bool:
        """Whether it is to be computed."""
        return self.standing in (Standing.MISSING, Standing.OUTDATED)


class Listing:
    """The files of events of some days, looked up by time. Made once for all jobs."""

    def __init__(self, lake: Lake, since: datetime, until: datetime) -> None:
        self._files = lake.files(since.date(), until.date())
        self._times = [
            datetime(file.date.year, file.date.month, file.date.day, file.hour, tzinfo=UTC)
            for file in self._files
        ]

    def between(self, since: datetime, until: datetime) -> tuple[LakeFile, ...]:
        """Those that hold events of a time: a file has the hour that begins at its time."""
        first = bisect.bisect_right(self._times, since - HOUR)
        return tuple(self._files[first : bisect.bisect_left(self._times, until)])


def periods(
    job: Job, window: Window, lake: Lake, *, again: bool = False, listing: Listing | None = None
) -> list[Period]:
    """The periods a window touches, in order.

    Args:
        job: whose.
        window: of days.
        lake: where the events are.
        again: whether what is current or kept counts as outdated.
        listing: of at least the job's span of the window; made here unless given.

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
    """All gaps.

    Raises:
        AnalyticsError: a file cannot be read.
    """
    try:
        return gaps.read(lake.root)
    except (OSError, ValueError) as error:
        raise AnalyticsError(str(error)) from None


def within(lost: Iterable[Gap], since: datetime, until: datetime) -> list[Gap]:
    """Those gaps that touch a time."""
    from_us, to_us = (int(each.timestamp()) * 1_000_000 for each in (since, until))
    return [gap for gap in lost if gap.to_us >= from_us and gap.from_us < to_us]


def result_files(lake: Lake, table: str, since: str = "", until: str = "") -> list[Path]:
    """The files that hold the results of a table, to be read together.

    They stay for at least `publishing.KEEP_S` after this.

    Args:
        lake: where they are.
        table: its name.
        since: the first period, empty for all.
        until: the last one, included.
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
    """Nobody else computes this job meanwhile; what a killed process left is noted as failed.

    Args:
        job: which.
        lake: of whose events.
        whose: what others are told this process is, beside its number.

    Raises:
        AnotherLake: the results in the database are of another one.
        Busy: somebody does.
        OSError: the cache cannot be written.
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
    """Return a line for each of some jobs that another process computes: which, and who."""
    found = []
    for job in sorted(jobs):
        with contextlib.suppress(OSError), _lock(job, lake).open("r+") as file:
            if not _locked(file, 0):
                found.append(_computed_by(job, file))
    return found


def note_killed(lake: Lake) -> None:
    """Note runs whose process is gone as failed: they count as running otherwise until the next.

    Only where they were begun, as the locks are there: runs of another lake are none of ours.
    """
    if origin.another(lake) is not None:
        return
    running = Run.objects.filter(state=RunState.RUNNING).order_by().values_list("job", flat=True)
    for job in running.distinct():
        with contextlib.suppress(FileNotFoundError), _lock(job, lake).open("r+") as file:
            if _locked(file, 0):
                _end_killed(job)


def begin(job: Job, window: Window, master: str) -> Run:
    """Note that a run has begun."""
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
    """Note how it ended."""
    run.state, run.error, run.ended_at = state, error, timezone.now()
    run.save(update_fields=["state", "error", "ended_at", "periods", "result_rows"])


def _lock(job: str, lake: Lake) -> Path:
    return lake.cache / f"{job}.lock"


def _computed_by(job: str, file: IO[str]) -> str:
    file.seek(0)
    return f"{job} is being computed by process {file.read().strip() or '?'}"


def _locked(file: IO[str], wait_s: float) -> bool:
    """Whether we have the lock, which lasts until the file is closed or the process ends."""
    until = time.monotonic() + wait_s
    while not (ours := lock(file.fileno())) and time.monotonic() < until:
        time.sleep(POLL_S)
    return ours


def _end_killed(job: str) -> None:
    """Only with the lock."""
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
    """What there is of each period."""
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
    """Whether a result is made of more than what another one could be made of."""
    now = footers.rows_by_day(files)
    least = min(held, key=lambda row: row.event_rows)
    then: dict[str, int] = least.day_rows
    if not then:  # of a release that did not note it
        return sum(now.values()) < least.event_rows
    own = [day for day in then if its.first.isoformat() <= day <= its.last.isoformat()]
    if own and min(own) not in now:
        return True  # days go from the first one on
    if any(rows > then.get(day, 0) for day, rows in now.items()):
        return False
    return any(now.get(day, 0) < rows for day, rows in then.items())
