"""Runner of a job: it finds the due periods, computes them with Spark, and publishes the results.

    runner.run(JOBS["rollup"], Window(first, last), lake, engine, progress)

Adjacent periods are computed together, as many as fit (`MOST_ROWS`), so that their margins are read
once. Each period is published by itself after its chunk, so a later failure does not undo it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from django.conf import settings
from django.db import DatabaseError

from relay.analytics import footers, ledger, origin, publishing
from relay.analytics.engine import Engine, first_line
from relay.analytics.errors import AnalyticsError, Interrupted
from relay.analytics.lake import Lake, LakeFile
from relay.analytics.ledger import Period, Standing
from relay.analytics.models import Run, RunState
from relay.analytics.progress import Progress
from relay.analytics.spark.catalogue import Job
from relay.analytics.spark.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_ROWS: Final = 60_000_000
"""Maximum events read at once, unless a single period has more. 50 million stayed within 6.5 GB on
one machine when measured."""

_REFUSALS: Final = tuple(
    os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
)
"""Messages of errors that only a write to a disk can raise."""


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run.

    Attributes:
        job: name of the job.
        run: name of the run in the ledger; empty if there was nothing to do.
        computed: number of computed periods.
        result_rows: number of rows of all tables.
        current: number of periods whose result already matched their events.
        kept: number of periods whose result was kept because some of their events were deleted.
        empty: number of periods without events.
    """

    job: str
    run: str
    computed: int
    result_rows: int
    current: int
    kept: int
    empty: int


def run(
    job: Job,
    window: Window,
    lake: Lake,
    engine: Engine,
    progress: Progress,
    *,
    again: bool = False,
    whose: str = "",
) -> Outcome:
    """Bring the results of a job up to date.

    Args:
        job: job to compute.
        window: days to compute.
        lake: lake of the events.
        engine: Spark, which is started only if there is something to compute.
        progress: display of the progress.
        again: whether to compute periods that are up to date as well.
        whose: name of this process that others see while it computes.

    Raises:
        Busy: another process computes the job.
        Interrupted: the operator stopped the command.
        AnalyticsError: the run failed; what was published before stays.
    """
    try:
        with ledger.claimed(job, lake, whose):
            return _run(job, window, lake, engine, progress, again=again)
    except DatabaseError:
        raise  # raised before the run began: the command says how to create tables
    except (Exception, KeyboardInterrupt) as error:
        told = _told(error, lake, engine)
        if told is None or isinstance(error, AnalyticsError):
            raise
        raise _named(job, error, told) from error


def _run(
    job: Job, window: Window, lake: Lake, engine: Engine, progress: Progress, *, again: bool
) -> Outcome:
    with progress.phase(f"{job.name}: looking for days to compute"):
        publishing.sweep(job, lake)
        found = ledger.periods(job, window, lake, again=again)
    due = [period for period in found if period.due]
    if not due:
        return _outcome(job, None, found)
    origin.claim(lake)
    noted = ledger.begin(job, window, engine.master)
    try:
        for chunk in chunks(due):
            _compute(job, chunk, noted, lake, engine, progress)
            publishing.publish(job, noted, chunk, lake)
    except BaseException as error:
        told = _told(error, lake, engine)
        with contextlib.suppress(DatabaseError):  # if it fails too, `note_killed` does it
            ledger.end(noted, RunState.FAILED, told or type(error).__name__)
        if engine.ended():
            engine.close()  # the next job starts another Java
        if told is None or isinstance(error, AnalyticsError):
            raise
        raise _named(job, error, told) from error
    ledger.end(noted, RunState.DONE)
    return _outcome(job, noted, found)


def chunks(due: Sequence[Period]) -> Iterator[list[Period]]:
    """Yield periods to compute together: adjacent ones, with a limited number of events."""
    chunk: list[Period] = []
    read: set[LakeFile] = set()
    rows = 0
    for period in due:
        its = footers.rows(set(period.files) - read)
        if chunk and (
            period.window.first - chunk[-1].window.last > timedelta(days=1)
            or rows + its > MOST_ROWS
        ):
            yield chunk
            chunk, read, rows = [], set(), 0
            its = footers.rows(period.files)
        chunk.append(period)
        read.update(period.files)
        rows += its
    if chunk:
        yield chunk


def _compute(
    job: Job, chunk: Sequence[Period], noted: Run, lake: Lake, engine: Engine, progress: Progress
) -> None:
    window = Window(chunk[0].window.first, chunk[-1].window.last)
    span = job.span(window)
    if not engine.is_open:
        with progress.phase(f"starting Spark at {engine.master}"):
            engine.open()
    inputs: dict[str, Any] = {}
    for name in job.inputs:
        if name == "gaps":
            inputs[name] = engine.gaps(ledger.within(ledger.read_gaps(lake), *span))
        elif name == "life_us":
            inputs[name] = 2 * settings.RMB.queue.retention_s * 1_000_000
        else:
            # Periods share the files of their margins.
            files = {file.path: file for period in chunk for file in period.files}
            with progress.phase(f"{job.name}: opening files of events ({len(files):,})"):
                inputs[name] = engine.events(files.values())
    with _kept(inputs, job.of_kinds):
        for table in job.tables:
            title = f"{job.name} {table.name}   {chunk[0].name} to {chunk[-1].name}"
            with progress.step(engine.session, title):
                module = table.load()
                frame: DataFrame = module.transform(window=window, **inputs)
                drafts = engine.path(publishing.draft(lake, table, noted))
                _write(frame.select(*module.SCHEMA.names), drafts)


@contextlib.contextmanager
def _kept(inputs: dict[str, Any], kinds: Sequence[str]) -> Iterator[None]:
    """Restrict the events to some kinds inside the block, reading them once.

    They are kept in memory, or on disk if they do not fit.
    """
    if not kinds:
        yield
        return
    kept = inputs["events"].where(inputs["events"]["kind"].isin(*kinds)).persist()
    inputs["events"] = kept
    try:
        yield
    finally:
        kept.unpersist()


def _write(frame: DataFrame, folder: str) -> None:
    """Write one file for each period, more if it is large; the hint `rebalance` ensures that."""
    by = publishing.PERIOD_COLUMN
    divided = frame.withColumn(by, frame["period"]).hint("rebalance", by)
    divided.write.partitionBy(by).parquet(folder)


def _named(job: Job, error: BaseException, told: str) -> AnalyticsError:
    kind = Interrupted if isinstance(error, KeyboardInterrupt) else AnalyticsError
    return kind(f"{job.name}: {told}")


def _told(error: BaseException, lake: Lake, engine: Engine) -> str | None:
    """Return a line about an error that an operator can act on; None for a programming error."""
    if isinstance(error, AnalyticsError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if ended := engine.ended():
        return ended  # the cause of all other errors
    if isinstance(error, DatabaseError):
        return f"database: {first_line(error)}"
    if isinstance(error, OSError):
        return f"{error.filename or 'files'}: {error.strerror or error}"
    if isinstance(error, ImportError):
        return None  # Spark itself may be missing

    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException | Py4JError):
        return None
    return engine.in_our_words(_refused(str(error), lake, engine) or first_line(error))


def _refused(text: str, lake: Lake, engine: Engine) -> str | None:
    """Return the refusal of a disk in a text of Spark, which has it at the end of a long trace."""
    why = next((each for each in _REFUSALS if each in text), None)
    if why is None:
        return None
    if results := re.search(r"writing rows to file:(\S+?)/_", text):
        return f"{results[1]}: {why}"
    where = lake.cache / "spark" if engine.master.startswith("local") else "the disk of a worker"
    return f"{where}: {why}"


def _outcome(job: Job, noted: Run | None, found: Sequence[Period]) -> Outcome:
    standings = [period.standing for period in found]
    return Outcome(
        job=job.name,
        run=noted.name if noted else "",
        computed=noted.periods if noted else 0,
        result_rows=noted.result_rows if noted else 0,
        current=standings.count(Standing.CURRENT),
        kept=standings.count(Standing.KEPT),
        empty=standings.count(Standing.EMPTY),
    )
