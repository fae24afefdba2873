"""`rmb_analytics stream`: count events by the minute, seconds after they happened."""

from __future__ import annotations

import argparse
import json
import threading
from argparse import ArgumentParser
from datetime import UTC, datetime
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from django.core.management.base import OutputWrapper

from relay.analytics import days
from relay.analytics.lake import Lake
from relay.analytics.spark import signals
from relay.ops import arguments

if TYPE_CHECKING:
    from relay.analytics.models import StreamState
    from relay.analytics.streaming import Batch

SUMMARY: Final = "count new events per minute, in the database"

DESCRIPTION: Final = """\
Count new events per minute in the database: number, size and delay, by relay, kind, reason and
partner relay. Every event counts once: after a crash, the command continues where it stopped. It
runs until you stop it; run it as a service.

  rmb_analytics stream                          continue, or start 12 hours ago
  rmb_analytics stream --once                   count the events in the lake, then end
  rmb_analytics stream --from 2026-11-21T14     start again from this hour (UTC, or with an offset:
                                                2026-11-21T14:00+02:00)

The database keeps the minutes of three days. For longer periods and other results, use the jobs.
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--master", default="", help="where Spark runs (default: analytics.master)")
    parser.add_argument(
        "--every",
        type=_seconds,
        default=0.5,
        metavar="S",
        help="seconds between two searches for new files (0.5)",
    )
    parser.add_argument(
        "--once", action="store_true", help="count the events in the lake, then end"
    )
    parser.add_argument(
        "--from", dest="since", type=_hour, metavar="HOUR", help="start again from this hour (UTC)"
    )
    parser.add_argument(
        "--restart", action="store_true", help="delete all counts and start again 12 hours ago"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per batch")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    from relay.analytics import streaming
    from relay.analytics.engine import Engine

    lake = Lake.configured()
    engine = Engine(lake, options["master"])
    ended = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()
        if not engine.is_open:  # the start takes seconds, and nothing is counted yet
            raise KeyboardInterrupt

    def began(state: StreamState) -> None:
        if not options["json"]:
            goes_on = f", {state.events:,} events so far" if state.events else ""
            out.write(f"counting {lake.events} from {_text(state.counts_from)}{goes_on}")

    def told(batch: Batch) -> None:
        out.write(_json(batch) if options["json"] else _line(batch))

    with signals.taken(end):
        try:
            streaming.stream(
                lake,
                engine,
                every_s=None if options["once"] else options["every"],
                since=options["since"],
                restart=options["restart"],
                stopping=ended.is_set,
                began=began,
                told=told,
            )
        except KeyboardInterrupt:
            return
        finally:
            engine.close()


def _line(batch: Batch) -> str:
    if not batch.new:
        return f"batch {batch.number:>6}: was counted already"
    newest = "" if batch.newest is None else f", up to {_text(batch.newest)}"
    return f"batch {batch.number:>6}: {batch.events:>9,} events, {batch.minutes:,} minutes{newest}"


def _json(batch: Batch) -> str:
    return json.dumps(
        {
            "batch": batch.number,
            "events": batch.events,
            "minutes": batch.minutes,
            "newest": batch.newest and batch.newest.isoformat(),
            "new": batch.new,
        }
    )


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3_600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return seconds


def _hour(text: str) -> datetime:
    try:
        found = arguments.moment(text)
        days.assert_usual(found.date())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an hour such as 2026-11-21T14") from None
    now = days.now()
    if found > now:  # nothing would be counted, without an error
        raise argparse.ArgumentTypeError(
            f"{text!r} is in the future; the latest hour is {now:%Y-%m-%dT%H} (UTC)"
        )
    return found
