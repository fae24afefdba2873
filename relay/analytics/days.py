"""Days as arguments of commands: `--from 2026-11-01`, `--to yesterday`, `--from 7d`."""

from __future__ import annotations

import argparse
from datetime import UTC, date, datetime, timedelta
from typing import Final

from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.analytics.spark.window import Window, next_month

FIRST: Final = date(1970, 1, 1)
LAST: Final = date(2999, 12, 31)
"""Last day in arguments. The margins that jobs read around a day may exceed these bounds."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--from` and `--to` to a parser."""
    form = "YYYY-MM-DD, YYYY-MM, today, yesterday, or a number of days ago such as 7d (UTC)"
    parser.add_argument("--from", dest="first", type=_first, help=f"first day: {form}")
    parser.add_argument("--to", dest="last", type=_last, help="last day (default: yesterday)")


def window(first: date | None, last: date | None) -> Window:
    """Return the requested days; by default, yesterday.

    Raises:
        AnalyticsError: the first day is after the last one.
    """
    last = last or max(first or _yesterday(), _yesterday())
    try:
        return Window(first or last, last)
    except ValueError as error:
        raise AnalyticsError(f"--from and --to: {error}") from None


def recorded(lake: Lake) -> Window | None:
    """Return the days that have events, up to yesterday, because today is not complete yet."""
    whole = lake.whole_span()
    if whole is None:
        return None
    return Window(whole[0], max(whole[0], min(whole[1], _yesterday())))


def now() -> datetime:
    """Return the current time, UTC."""
    return datetime.now(UTC)


def _today() -> date:
    return now().date()


def _yesterday() -> date:
    return _today() - timedelta(days=1)


def _first(text: str) -> date:
    return _day(text, last=False)


def _last(text: str) -> date:
    return _day(text, last=True)


def assert_usual(day: date) -> None:
    """Check that a day is within `FIRST` and `LAST`.

    Raises:
        ValueError: it is not.
    """
    if not FIRST <= day <= LAST:
        raise ValueError(f"{day} is not from {FIRST} to {LAST}")


def _day(text: str, *, last: bool) -> date:
    try:
        found = _read(text, last=last)
        assert_usual(found)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"invalid day {text}; use 2026-11-01, 2026-11 or 7d, from {FIRST} on"
        ) from None
    # The name of the current month stands for the whole month, up to its last day.
    latest = next_month(_today()) - timedelta(days=1) if last else _today()
    if found > latest:
        raise argparse.ArgumentTypeError(f"{found} is in the future; the latest day is {latest}")
    return found


def _read(text: str, *, last: bool) -> date:
    if text in ("today", "yesterday"):
        return _today() if text == "today" else _yesterday()
    if text.endswith("d") and text[:-1].isascii() and text[:-1].isdecimal():
        return _today() - timedelta(days=int(text[:-1]))
    if len(text) == len("2026-11"):
        begin = date.fromisoformat(f"{text}-01")
        end = next_month(begin) - timedelta(days=1)
        return end if last else begin
    return date.fromisoformat(text)
