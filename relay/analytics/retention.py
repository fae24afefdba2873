"""Days beyond what is kept go, with what recorders told of them.

A clock that is wrong must not take the history along: nothing goes while the newest events are
themselves beyond what is kept.
"""

from __future__ import annotations

import json
import logging
import shutil
from datetime import UTC, date, datetime, timedelta
from typing import Final

from relay.analytics.lake import Lake
from relay.analytics.places import DRAFT
from relay.analytics.segments import UNREADABLE_SUFFIX

DAY_S: Final = 86_400.0

logger = logging.getLogger("relay.analytics.compactor")


def expire(lake: Lake, keep_days: int, now_s: float) -> list[date]:
    """Remove the days before the last `keep_days`; today is one of them.

    Returns:
        The days that went.

    Raises:
        OSError: a file cannot be removed.
    """
    for left in lake.events.glob(f"{DRAFT}date=*"):
        shutil.rmtree(left)  # of a removal that was killed
    first_kept = datetime.fromtimestamp(now_s, UTC).date() - timedelta(days=keep_days - 1)
    days = lake.days()
    gone = [day for day in days if day < first_kept]
    if gone and len(gone) == len(days):
        logger.error(
            "all events are from before %s and are kept: is the clock right? If it is, remove %s",
            first_kept,
            lake.events,
        )
        return []
    for day in gone:
        # Under its new name no reader sees it: a day is there whole or not at all.
        folder = lake.events / f"date={day}"
        hidden = folder.with_name(f"{DRAFT}{folder.name}")
        folder.rename(hidden)
        shutil.rmtree(hidden)
    if gone:
        logger.info("days of events before %s that were removed: %d", first_kept, len(gone))
    _expire_rest(lake, now_s - keep_days * DAY_S)
    return gone


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
