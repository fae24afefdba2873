"""Retention: days that are older than the retention period are removed, with their gaps.

A wrong clock must not delete the history. Nothing is removed while the newest events are themselves
older than the retention period. A relay also records with the wrong clock, so today's date is
trusted only as far as days with events lead up to it: with seven such days (`LEADING`) in a row up
to today, it is today; otherwise it is as many days earlier as are missing among the latest seven.
So after a jump of the clock, the trusted date advances by one day with each recorded day, until
there are seven: then the clock is considered right, and the relay is considered to have been off.
All of this follows from the existing days; no state is stored.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from relay.analytics.lake import Lake
from relay.analytics.places import DRAFT
from relay.analytics.segments import UNREADABLE_SUFFIX

DAY_S: Final = 86_400.0

LEADING: Final = 7
"""Number of days with events after which today's date is trusted; fewer if fewer days are kept."""

logger = logging.getLogger("relay.analytics.compactor")


def expire(lake: Lake, keep_days: int, now_s: float, *, sure: bool = False) -> list[date]:
    """Remove the days before the last `keep_days`, of which today is one.

    The caller must hold `Lake.changing`.

    Args:
        lake: lake to clean.
        keep_days: number of days that stay.
        now_s: time of the clock, in seconds since 1970.
        sure: whether an operator confirms that the clock is right.

    Returns:
        The removed days.

    Raises:
        OSError: a file cannot be removed.
    """
    for left in lake.events.glob(f"{DRAFT}date=*"):
        shutil.rmtree(left)  # left by a removal that was killed
    today = datetime.fromtimestamp(now_s, UTC).date()
    kept = timedelta(days=keep_days - 1)
    days = lake.days()
    gone = [day for day in days if day < today - kept]
    if gone and not sure:
        believed = _believed(days, today, min(keep_days, LEADING))
        if today - believed > timedelta(days=LEADING):
            logger.error(
                "days of events before %s are kept, for few lead up to today, %s: is the clock "
                "right? If it is, they go by themselves after %d days with events, or at once by "
                "manage.py rmb_analytics compact --expire",
                today - kept,
                today,
                LEADING,
            )
        if believed < today:
            now_s = datetime.combine(believed, time(), UTC).timestamp()
        gone = [day for day in gone if day < believed - kept]
    for day in gone:
        # Readers skip the new name: a day exists as a whole, or not at all.
        folder = lake.events / f"date={day}"
        hidden = folder.with_name(f"{DRAFT}{folder.name}")
        folder.rename(hidden)
        shutil.rmtree(hidden)
    if gone:
        logger.info("days of events up to %s that were removed: %d", gone[-1], len(gone))
    _expire_rest(lake, now_s - keep_days * DAY_S)
    return gone


def _believed(days: Sequence[date], today: date, leading: int) -> date:
    """Return the latest date up to today that the days with events confirm."""
    known = [day for day in days if day <= today]
    if len(known) < leading:
        return known[0]
    return known[-leading] + timedelta(days=leading - 1)


def _expire_rest(lake: Lake, before_s: float) -> None:
    for path in lake.gaps.glob("*.json"):
        try:
            until_s = int(json.loads(path.read_text())["to_us"]) / 1_000_000
        except (ValueError, KeyError, TypeError):
            until_s = path.stat().st_mtime
        if until_s < before_s:
            path.unlink()
    for path in (*lake.segments.glob(f"*{UNREADABLE_SUFFIX}"), *lake.bad.glob("*")):
        if path.stat().st_mtime < before_s:
            path.unlink()
