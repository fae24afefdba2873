"""`rmb_analytics run JOB|all`: compute the results of some days."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from django.core.management.base import OutputWrapper

from relay.analytics import days
from relay.analytics.errors import AnalyticsError, Busy, Interrupted, NoEngine
from relay.analytics.lake import Lake
from relay.analytics.progress import Progress
from relay.analytics.spark.catalogue import JOBS, Job
from relay.analytics.spark.window import Window
from relay.ops import arguments

SUMMARY: Final = "compute the results of a job, or of all, for some days"

DESCRIPTION: Final = (
    """\
Compute results for the console, REST and SQL queries.

The command computes each day once. It computes a day again only if its events have changed, because
late events arrived or a file was repaired. An interrupted job keeps the days it has published; run
it again to compute the rest. If another process computes a job, such as the relay's daily schedule,
the command waits for it and then computes the remaining days.

  rmb_analytics run all                                 every job, yesterday
  rmb_analytics run rollup --from 2026-11 --to 2026-11  a month
  rmb_analytics run audit --from 7d --again             even if nothing changed
  rmb_analytics run all --master spark://host:7077      on a cluster; see analytics.master

"""
    + "\n".join(f"  {job.name:<12} {job.about}" for job in JOBS.values())
    + "\n"
)


WAIT_MINUTES: Final = 60
MOST_WAIT_MINUTES: Final = 24 * 60

T = TypeVar("T")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "job", choices=[*JOBS, "all"], metavar="JOB", help="a job of the list above, or all"
    )
    days.add_arguments(parser)
    add_engine_arguments(parser)
    add_wait_argument(parser)
    parser.add_argument("--again", action="store_true", help="also days that are up to date")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def add_engine_arguments(parser: ArgumentParser) -> None:
    """Add `--master` and `--quiet`, for verbs that compute."""
    parser.add_argument("--master", default="", help="where Spark runs (default: analytics.master)")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def add_wait_argument(parser: ArgumentParser) -> None:
    """Add `--wait`, for verbs that operators run by hand."""
    parser.add_argument(
        "--wait",
        type=arguments.whole_number(0, MOST_WAIT_MINUTES),
        default=WAIT_MINUTES,
        metavar="MINUTES",
        help=f"longest wait for another process that computes a job; 0: none ({WAIT_MINUTES})",
    )


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    jobs = list(JOBS.values()) if options["job"] == "all" else [JOBS[options["job"]]]
    window = days.window(options["first"], options["last"])
    compute(out, options, [(job, window) for job in jobs])


def compute(
    out: OutputWrapper,
    options: dict[str, Any],
    wanted: Sequence[tuple[Job, Window]],
    *,
    whose: str = "",
) -> None:
    """Run jobs one after another, and print what they did.

    Args:
        out: output of the command.
        options: options of the command; without `wait`, busy jobs are not waited for.
        wanted: jobs, and the days to compute.
        whose: name of this process that others see.

    Raises:
        Interrupted: the operator stopped the command; what was published before stays.
        Busy: other processes compute some jobs; the others are done.
        AnalyticsError: some jobs failed; the others are done, unless Spark does not start.
    """
    from relay.analytics import ledger, runner
    from relay.analytics.engine import Engine

    lake = Lake.configured()
    engine = Engine(lake, options["master"], span=_span(wanted))
    progress = Progress(quiet=options["quiet"])
    how = {"again": options.get("again", False), "whose": whose}
    wait_minutes = options.get("wait", 0)
    outcomes, failures, busy = [], [], []
    first = wanted[0][0].name  # if it is busy, `_when_free` reports that
    for told in ledger.at_work(lake, JOBS.keys() - {first}):
        progress.say(f"{told}: both runs take longer")
    try:
        for job, window in wanted:
            try:
                outcome = _when_free(
                    functools.partial(runner.run, job, window, lake, engine, progress, **how),
                    wait_minutes,
                    progress,
                )
            except (NoEngine, Interrupted):
                raise
            except Busy as error:
                busy.append(str(error))
                continue
            except AnalyticsError as error:
                failures.append(str(error))
                continue
            outcomes.append(outcome)
            if not options["json"]:
                out.write(_told(outcome))
    finally:
        engine.close()
    if options["json"]:
        out.write(json.dumps([dataclasses.asdict(each) for each in outcomes], indent=2))
    if failures:
        raise AnalyticsError("\n".join(failures + busy))
    if busy:
        raise Busy("\n".join(busy))
    if not lake.days():
        raise AnalyticsError(
            f"there are no events in {lake.events}: set analytics.record to record "
            "the events of the relay, or generate some with `rmb_analytics generate`"
        )


def _span(wanted: Sequence[tuple[Job, Window]]) -> tuple[datetime, datetime]:
    """Return the time whose events these jobs read."""
    spans = [job.span(window) for job, window in wanted]
    return min(since for since, _ in spans), max(until for _, until in spans)


def _when_free(attempt: Callable[[], T], wait_minutes: int, progress: Progress) -> T:
    """Call `attempt`, and retry while another process computes the job, which is reported.

    Raises:
        Busy: another process still computes it after the waiting time.
    """
    until = time.monotonic() + wait_minutes * 60
    told = ""
    while True:
        try:
            return attempt()  # it waits a moment itself
        except Busy as error:
            if time.monotonic() >= until:
                raise
            if told != (told := str(error)):
                progress.say(f"{told}: waiting for at most {wait_minutes} minutes (--wait)")


def _told(outcome: Any) -> str:
    parts = [
        f"{outcome.computed} computed, {outcome.result_rows:,} rows" if outcome.computed else "",
        f"{outcome.current} up to date" if outcome.current else "",
        f"{outcome.kept} kept, because events were deleted since" if outcome.kept else "",
        f"{outcome.empty} without events" if outcome.empty else "",
    ]
    return f"{outcome.job:<12} {'; '.join(part for part in parts if part)}"
