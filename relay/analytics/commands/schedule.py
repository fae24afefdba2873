"""`rmb_analytics schedule`: show or run the daily schedule."""

from __future__ import annotations

import dataclasses
import json
import os
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.core.management.base import OutputWrapper

from relay.analytics import daily
from relay.analytics.commands import run
from relay.analytics.lake import Lake

SUMMARY: Final = "show the daily schedule; --now: run it"

DESCRIPTION: Final = f"""\
The relay's Celery schedule runs all jobs once a day, at analytics.daily_at (UTC), for the
{daily.DAYS} days before. If you run no Celery workers, let cron run `rmb_analytics schedule --now`
instead. A second run on the same day computes only what is missing.
"""

NICENESS: Final = 10
"""Nice value: on a shared machine, the relay has priority."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--now", action="store_true", help="run the jobs of the day now")
    run.add_engine_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    now = datetime.now(UTC)
    if options["now"]:
        os.nice(NICENESS)
        run.compute(out, options, daily.wanted(now), whose=daily.NAME)
        return
    tried = daily.last_tried(Lake.configured())
    due = daily.next_at(now, tried)
    first, last = (getattr(daily.wanted(now)[0][1], end) for end in ("first", "last"))
    if options["json"]:
        document = {
            "next_at": due.isoformat() if due else None,
            "first_day": str(first),
            "last_day": str(last),
            "last": dataclasses.asdict(tried) if tried.at else None,
        }
        out.write(json.dumps(document, indent=2))
        return
    at = settings.RMB.analytics.daily_at
    out.write(f"every day at {at} UTC" if at else "never: analytics.daily_at is empty")
    if due is not None:
        out.write(f"next   {due:%Y-%m-%d %H:%M} UTC, as soon as a Celery worker runs")
    if tried.at:
        how = "done" if tried.done else f"failed, try {tried.tries}: {tried.error}"
        if tried.busy:
            how = f"waits: {tried.error}"
        out.write(f"last   {tried.at}  {how}")
