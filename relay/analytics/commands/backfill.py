"""`rmb_analytics backfill`: compute everything that is missing or outdated."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.analytics import days
from relay.analytics.commands import run
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.analytics.spark.catalogue import JOBS

SUMMARY: Final = "compute all missing and outdated days"

DESCRIPTION: Final = """\
Compute all days whose results are missing, or whose events have changed since. Use it after the
first set-up, when events of a relay arrived late, or after an upgrade that changed a job.
`rmb_analytics status` lists these days.

  rmb_analytics backfill
  rmb_analytics backfill rollup audit --from 2026-01
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("job", nargs="*", metavar="JOB", help=f"{', '.join(JOBS)}; default: all")
    days.add_arguments(parser)
    run.add_engine_arguments(parser)
    run.add_wait_argument(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    names = options["job"] or list(JOBS)
    unknown = sorted(set(names) - set(JOBS))
    if unknown:
        raise AnalyticsError(f"{unknown[0]} is not a job; jobs: {', '.join(JOBS)}")
    there = days.recorded(Lake.configured())
    first, last = (there.first, there.last) if there else (None, None)
    window = days.window(options["first"] or first, options["last"] or last)
    run.compute(out, options, [(JOBS[name], window) for name in names])
