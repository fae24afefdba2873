"""Counts of events per minute as their files arrive: `manage.py rmb_analytics stream`.

    compactor -> a file of events -> Spark's file source -> sums -> one transaction -> LiveMinute

Each file is read once. Files of the compactor never change, and stay for a day after merging has
copied their rows into another file, whose name the stream skips. This has two consequences:

- A stream that did not run for most of a day may have missed files. It starts again, with the
  minutes from then on: `since` of its state. The jobs cover the days before.
- Spark's list of files it has seen only grows. So after a week the stream begins a new list, half a
  day back; the minutes from there on are deleted and counted again from the same files.

In both cases, one transaction stores the new checkpoint and deletes the minutes that it will count.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, close_old_connections, connection

from relay.analytics import footers, merging, origin, sink
from relay.analytics.engine import Engine, first_line
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import FRESH_GLOB, Lake, replaced_by
from relay.analytics.models import StreamState
from relay.analytics.segments import lock

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_BACK: Final = timedelta(hours=12)
"""How far back a new checkpoint begins; files of that time are not removed yet."""

LONGEST_PAUSE: Final = timedelta(seconds=merging.KEEP_S) - timedelta(hours=2)
"""Longest pause of a stream after which no file can have been removed unread."""

LONGEST_CHECKPOINT: Final = timedelta(days=7)
"""Age at which a checkpoint is replaced; at four files a minute, its list has 40,000 names then."""

BEAT_S: Final = 60.0
LOOK_S: Final = 1
"""Seconds between two checks for a stop while Spark works."""

LOCK: Final = "stream.lock"


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Result of one batch.

    Attributes:
        number: number of the batch in its checkpoint.
        events: number of events.
        minutes: number of minutes that have events.
        newest: time of its latest event; None if it had none.
        new: whether it was added now; False if it was added before.
    """

    number: int
    events: int
    minutes: int
    newest: datetime | None
    new: bool


def stream(
    lake: Lake,
    engine: Engine,
    *,
    every_s: float | None,
    since: datetime | None = None,
    restart: bool = False,
    stopping: Callable[[], bool] = lambda: False,
    began: Callable[[StreamState], None] = lambda state: None,
    told: Callable[[Batch], None] = lambda batch: None,
) -> None:
    """Count events until the stream is stopped, or all existing ones are counted.

    Args:
        lake: lake of the events.
        engine: Spark.
        every_s: seconds between two searches for files; None: one search.
        since: hour from which to count again; None: continue.
        restart: whether to delete all counts first.
        stopping: function that returns whether to end; called often.
        began: called with the state when counting begins.
        told: called with each batch, in another thread.

    Raises:
        AnalyticsError: the stream cannot continue; its counts stay, and the next stream continues.
    """
    lake.events.mkdir(parents=True, exist_ok=True)
    origin.claim(lake)
    with alone(lake):
        while True:
            state = checkpoint(lake, since, restart)
            since, restart = None, False
            began(state)
            if _run(lake, engine, state, every_s, stopping, told):
                return


def checkpoint(lake: Lake, since: datetime | None, restart: bool) -> StreamState:
    """Return the checkpoint to continue with, or a new one."""
    now = datetime.now(UTC)
    state = sink.state()
    keep = False
    if state is not None and since is None and not restart:
        whole = state.batch < 0 or (lake.checkpoints / state.checkpoint).is_dir()
        keep = whole and now - state.updated_at < LONGEST_PAUSE
        if keep and now - state.began_at < LONGEST_CHECKPOINT:
            return state
    begin = (since or now - LOOK_BACK).replace(minute=0, second=0, microsecond=0)
    _assert_whole(lake, begin)
    state = sink.begin(begin, now, keep=keep)
    for old in lake.checkpoints.glob("live-*"):
        if old.name != state.checkpoint:
            shutil.rmtree(old)
    return state


def _assert_whole(lake: Lake, begin: datetime) -> None:
    """Check that the stream can read all rows from an hour on, without the merged files."""
    for day in lake.days():
        for hour in lake.hours(day) if day >= begin.date() else ():
            if datetime(day.year, day.month, day.day, hour, tzinfo=UTC) < begin:
                continue
            present = {file.path.name: file for file in lake.present(day, hour)}
            for file in present.values():
                if file.merged and not all(
                    _there(name, present) for name in replaced_by(file.path)
                ):
                    raise AnalyticsError(
                        f"the files of {day} {hour:02}:00 were merged, and a stream counts only "
                        "what comes: begin later, and let the jobs count what was before"
                    )


def _there(name: str, present: dict[str, Any]) -> bool:
    """Check whether a replaced file exists, or was itself a merged one, which has its own parts."""
    from relay.analytics.lake import MERGED_SUFFIX

    return name in present or name.endswith(MERGED_SUFFIX)


def _run(
    lake: Lake,
    engine: Engine,
    state: StreamState,
    every_s: float | None,
    stopping: Callable[[], bool],
    told: Callable[[Batch], None],
) -> bool:
    """Count with one checkpoint; return False when another one is needed."""
    from relay.analytics.spark import stream as spark_stream

    failures: list[Exception] = []
    folder = lake.checkpoints / state.checkpoint

    def apply(number: int, sums: list[Row]) -> None:
        close_old_connections()
        try:
            assert_readable(spark_stream.files_of(folder, number))
            new = sink.apply(
                state.checkpoint, number, [row.asDict() for row in sums], datetime.now(UTC)
            )
        except Exception as error:
            failures.append(error)  # Spark keeps only its text
            raise
        told(_batch(number, sums, new))

    today = datetime.now(UTC).date()
    first = state.counts_from.date()
    ahead = today + LONGEST_CHECKPOINT + timedelta(days=1)
    source = spark_stream.Source(
        events=Path(engine.path(lake.events)),
        names=FRESH_GLOB,
        first_day=first,
        days=max((ahead - first).days + 1, 1),
        from_us=spark_stream.moment_us(state.counts_from),
    )
    query = spark_stream.start(engine.session, source, Path(engine.path(folder)), apply, every_s)
    try:
        over = _watch(query, state, stopping)
    finally:
        query.stop()
        connection.close()
    failed = query.exception()
    if failures:
        error = failures[0]
        if not isinstance(error, AnalyticsError | DatabaseError):
            raise error
        raise AnalyticsError(f"the stream ended: {error}") from error
    if failed is not None and not stopping():  # a stopped batch may fail
        raise AnalyticsError(f"the stream ended: {first_line(failed)}") from failed
    return over


def assert_readable(files: Iterable[Path]) -> None:
    """Check the files of a batch.

    Spark would retry a broken file forever, and would misread a file of a later version.
    """
    for path in files:
        try:
            footers.assert_readable(path)
        except AnalyticsError as error:
            raise AnalyticsError(f"{error}. Then: rmb_analytics stream --restart") from None


def _watch(query: StreamingQuery, state: StreamState, stopping: Callable[[], bool]) -> bool:
    """Wait for the end of the stream; return False when another checkpoint is needed."""
    beaten_s = time.monotonic()
    while not _ended(query):
        if stopping():
            return True
        if time.monotonic() - beaten_s >= BEAT_S:
            beaten_s = time.monotonic()
            close_old_connections()
            sink.beat(state.checkpoint, datetime.now(UTC))
        if datetime.now(UTC) - state.began_at >= LONGEST_CHECKPOINT:
            return False
    return True


def _ended(query: StreamingQuery) -> bool:
    from pyspark.errors import StreamingQueryException

    try:
        return bool(query.awaitTermination(LOOK_S))
    except StreamingQueryException:
        return True


def _batch(number: int, sums: list[Row], new: bool) -> Batch:
    newest_us = max((row["newest_us"] for row in sums), default=None)
    return Batch(
        number=number,
        events=sum(row["n"] for row in sums),
        minutes=len({row["minute_us"] for row in sums}),
        newest=None if newest_us is None else datetime.fromtimestamp(newest_us / 1e6, UTC),
        new=new,
    )


@contextlib.contextmanager
def alone(lake: Lake) -> Iterator[None]:
    """Hold the lock of the stream: two streams would replace each other's checkpoint."""
    lake.checkpoints.mkdir(parents=True, exist_ok=True)
    with (lake.checkpoints / LOCK).open("a") as file:
        if not lock(file.fileno()):
            raise AnalyticsError(f"a stream runs already on {lake.events}")
        yield
