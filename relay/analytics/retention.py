"""Days beyond what is kept go, with what recorders told of them.

A clock that is wrong must not take the history along. Nothing goes while the newest events are
themselves beyond what is kept; and since a relay records by the wrong clock, too, a date is
believed only as far as days with events lead up to it. With seven of them (`LEADING`) in a row up
to today it is today; otherwise it is as many days earlier as are missing among the latest seven.
So after a jump time goes on by a day with each day that is recorded, until there are seven: then
the clock is taken to be right, and the relay to have been off. All of this is told by the days that
are there; nothing has to be remembered.
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
"""Days with events that make today believed; fewer where fewer are kept."""

logger = logging.getLogger("relay.analytics.compactor")


def expire(lake: Lake, keep_days: int, now_s: float, *, sure: bool = False) -> list[date]:
    """Remove the days before the last `keep_days`; today is one of them.

    Only inside `Lake.changing`.

    Args:
        lake: whose.
        keep_days: how many days stay.
        now_s: unix time, as the clock says.
        sure: whether somebody says that the clock is right.

    Returns:
        The days that went.

    Raises:
        OSError: a file cannot be removed.
    """
    for left in lake.events.glob(f"{DRAFT}date=*"):
        shutil.rmtree(left)  # of a removal that was killed
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
        # Under its new name no reader sees it: a day is there whole or not at all.
        folder = lake.events / f"date={day}"
        hidden = folder.with_name(f"{DRAFT}{folder.name}")
        folder.rename(hidden)
        shutil.rmtree(hidden)
    if gone:
        logger.info("days of events up to %s that were removed: %d", gone[-1], len(gone))
    _expire_rest(lake, now_s - keep_days * DAY_S)
    return gone


def _believed(days: Sequence[date], today: date, leading: int) -> date:
    """Today as far as the days with events make it likely."""
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
