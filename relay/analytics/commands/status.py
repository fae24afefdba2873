"""`rmb_analytics status`: show computed and missing days, and the latest runs."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.analytics import days, gaps
from relay.analytics.lake import Lake
from relay.analytics.models import Run
from relay.analytics.spark.window import next_month
from relay.ops import arguments

SUMMARY: Final = "show the state of all days, and the latest runs"

DESCRIPTION: Final = """\
Show, for each job, the state of all days (or months) up to yesterday:

  current    the result matches the events
  missing    not computed yet
  outdated   events arrived after the computation, or an earlier version of the job computed it
  kept       some of its events have been deleted, so the result stays as it is, even if more
             events arrive
  empty      no events

`rmb_analytics backfill` computes missing and outdated days.
"""

RUNS: Final = 10
MOST_RUNS: Final = 1_000_000
SHOWN_SPANS: Final = 4


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--runs",
        type=arguments.whole_number(0, MOST_RUNS),
        default=RUNS,
        help=f"number of runs to show (default {RUNS})",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    from relay.analytics import ledger, origin

    lake = Lake.configured()
    ledger.note_killed(lake)
    another = origin.another(lake)
    document = {
        "another_lake": None if another is None else str(another),
        **_standings(),
        "runs": [_run(run) for run in Run.objects.all()[: options["runs"]]],
    }
    if options["json"]:
        out.write(json.dumps(document, indent=2))
        return
    for line in _lines(document):
        out.write(line)


def _standings() -> dict[str, Any]:
    from relay.analytics import ledger
    from relay.analytics.ledger import Standing
    from relay.analytics.spark.catalogue import JOBS

    lake = Lake.configured()
    whole, window = lake.whole_span(), days.recorded(lake)
    if whole is None or window is None:
        return {"events": None, "lost_in_gaps": None, "jobs": []}
    always = (datetime.min.replace(tzinfo=UTC) + ledger.HOUR, datetime.max.replace(tzinfo=UTC))
    listing = ledger.Listing(lake, *always)
    jobs = []
    for job in JOBS.values():
        found = ledger.periods(job, window, lake, listing=listing)
        standings = [period.standing for period in found]
        jobs.append(
            {
                "job": job.name,
                **{each.value: standings.count(each) for each in Standing},
                "due": [period.name for period in found if period.due],
            }
        )
    files = listing.between(*always)
    events = {
        "first_day": str(whole[0]),
        "last_day": str(whole[1]),
        "files": len(files),
        "size_bytes": sum(file.size_bytes for file in files),
    }
    lost = gaps.cost(ledger.read_gaps(lake))
    return {"events": events, "lost_in_gaps": lost._asdict(), "jobs": jobs}


def _run(run: Run) -> dict[str, Any]:
    took = run.ended_at - run.began_at if run.ended_at else None
    return {
        "run": run.name,
        "job": run.job,
        "state": run.state,
        "first_day": str(run.first_day),
        "last_day": str(run.last_day),
        "periods": run.periods,
        "rows": run.result_rows,
        "began_at": run.began_at.isoformat(timespec="seconds"),
        "seconds": round(took.total_seconds(), 1) if took else None,
        "master": run.master,
        "error": run.error,
    }


def _lines(document: dict[str, Any]) -> Iterable[str]:
    events = document["events"]
    if document["another_lake"]:
        yield f"the results are from another lake, {document['another_lake']}: see takeover --help"
    if events is None:
        yield "there are no events yet"
    else:
        yield (
            f"events  {events['first_day']} to {events['last_day']}, {events['files']:,} files, "
            f"{events['size_bytes'] / 1e6:,.1f} MB"
        )
        lost = gaps.Cost(**document["lost_in_gaps"])
        if lost.gaps:
            yield f"gaps    {lost.gaps:,}, which lost {lost}"
        yield ""
        yield "JOB         CURRENT  MISSING  OUTDATED   KEPT  EMPTY  TO COMPUTE"
        for job in document["jobs"]:
            yield (
                "{job:<11} {current:>7}  {missing:>7}  {outdated:>8}  {kept:>5}  {empty:>5}".format(
                    **job
                )
                + f"  {_spans(job['due'])}"
            ).rstrip()
    if document["runs"]:
        yield ""
        yield "RUN                     JOB         STATE      PERIODS        ROWS  SECONDS"
    for run in document["runs"]:
        seconds = "-" if run["seconds"] is None else f"{run['seconds']:.0f}"
        yield (
            f"{run['run']:<23} {run['job']:<11} {run['state']:<9} {run['periods']:>8}  "
            f"{run['rows']:>10,}  {seconds:>7}  {run['error']}"
        ).rstrip()


def _spans(names: list[str]) -> str:
    """Return adjacent days as spans: 2026-11-01 to 2026-11-20."""
    spans: list[list[str]] = []
    for name in names:
        if spans and _next(spans[-1][-1]) == name:
            spans[-1][1:] = [name]
        else:
            spans.append([name])
    told = [" to ".join(span) for span in spans[:SHOWN_SPANS]]
    return ", ".join(told) + (
        f" and {len(spans) - SHOWN_SPANS} more" if spans[SHOWN_SPANS:] else ""
    )


def _next(name: str) -> str:
    if len(name) == len("2026-11"):
        return f"{next_month(date.fromisoformat(f'{name}-01')):%Y-%m}"
    return f"{datetime.fromisoformat(name) + timedelta(days=1):%Y-%m-%d}"
