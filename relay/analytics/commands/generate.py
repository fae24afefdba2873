"""`rmb_analytics generate`: generate a history to try the analytics with."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from argparse import ArgumentParser
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from django.core.management.base import OutputWrapper

from relay.analytics import days, places

SUMMARY: Final = "generate a history of events to try the analytics with"
DESCRIPTION: Final = """\
Write events of invented twins and relays. There is more traffic by day than by night, and a few
twins send most messages. Messages wait, are dropped, lost or duplicated. Single twins send bursts,
many clients reconnect at once, and one relay often fails. generated.json beside the events lists
these, to compare with the results of the jobs. The same options generate the same history.

  export RMB_DATA__DIR=$HOME/try     use another data folder and database; then run `migrate`
  rmb_analytics generate --days 3 --rows 100k
  rmb_analytics run all --from 3d

5 million rows take about 12 seconds and 72 MB.
"""
PROGRESS_S: Final = 1.0

_UNITS: Final = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=_count, default=1_000_000, help="approximate number of rows (1M)"
    )
    parser.add_argument("--days", type=int, default=30, help="days of history (30)")
    parser.add_argument(
        "--from",
        dest="first",
        type=_day,
        metavar="DAY",
        help="first day (default: --days before today)",
    )
    parser.add_argument("--twins", type=_count, default=20_000, help="number of twins (20k)")
    parser.add_argument("--relays", type=int, default=6, help="number of relays (6)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random history (1)")
    parser.add_argument("--lost", type=float, default=2, help="lost messages per million (2)")
    parser.add_argument(
        "--doubled", type=float, default=460, help="duplicated messages per million (460)"
    )
    parser.add_argument("--bursts", type=int, default=5, help="bursts after the first week (5)")
    parser.add_argument("--storms", type=int, default=50, help="storms of reconnects (50)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder (analytics.dir)")
    parser.add_argument("--json", action="store_true", help="print generated.json")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    from relay.analytics import generator

    folder = (options["out"] or places.configured().root).expanduser().absolute()
    today = datetime.now(UTC).date()
    names = ("days", "rows", "twins", "relays", "seed", "lost", "doubled", "bursts", "storms")
    chosen = generator.Options(options["first"] or today, **{name: options[name] for name in names})
    if not options["first"]:
        chosen = dataclasses.replace(chosen, first=today - timedelta(days=chosen.days))
    began = time.monotonic()
    told = began

    def progress(hour: int, hours: int) -> None:
        nonlocal told
        if sys.stderr.isatty() and (time.monotonic() - told > PROGRESS_S or hour == hours):
            told = time.monotonic()
            print(f"\r{hour:,} of {hours:,} hours", end="", file=sys.stderr, flush=True)

    truth = generator.generate(folder, chosen, progress)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    if options["json"]:
        out.write(json.dumps(dataclasses.asdict(truth), indent=2))
        return
    last = chosen.first + timedelta(days=chosen.days - 1)
    out.write(f"{sum(truth.rows.values()):,} events of {chosen.first} to {last} in {folder}")
    for kind, count in truth.rows.items():
        out.write(f"  {kind:<14} {count:>14,}")
    out.write(
        f"the history contains: {len(truth.lost)} lost and {len(truth.doubled)} doubled messages, "
        f"{len(truth.bursts)} bursts, {len(truth.storms)} storms; see {generator.TRUTH}"
    )


def _count(text: str) -> int:
    """Parse a number such as `5000`, `5k` or `5M`."""
    unit = _UNITS.get(text[-1:], 1)
    try:
        return int(float(text[:-1]) * unit) if unit > 1 else int(text)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number such as 5000, 5k or 5M"
        ) from None


def _day(text: str) -> date:
    try:
        found = date.fromisoformat(text)
        days.assert_usual(found)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid day {text!r}; use 2026-11-01") from None
    return found
