"""Checks that recorded events reach the lake completely."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Iterator
from typing import Final

from django.conf import settings
from django.db import DatabaseError

from relay.analytics import backlog, origin, places
from relay.analytics.errors import AnalyticsError
from relay.ops.doctor.finding import Finding, ok, warning
from relay.ops.wording import counted

LIBRARY: Final = "pyarrow"
LATE_S: Final = 300.0
"""Seconds after which a closed segment is late: a working compactor takes it within a second."""


def lake() -> Iterator[Finding]:
    """Check that segments do not pile up and can be read, and that the lake is the right one."""
    config = settings.RMB.analytics
    if not config.record:
        return
    folders = places.configured()
    if importlib.util.find_spec(LIBRARY) is None:
        yield warning(
            "analytics.packages",
            f"events are recorded, and {LIBRARY} is not installed: they wait as segments, of which "
            f"the oldest are dropped beyond {config.segments_max_bytes:,} bytes",
            "make setup-analytics, or turn analytics.record off",
        )
    before_us = (time.time() - LATE_S) * 1_000_000
    late = []
    for path in backlog.closed(folders):
        with contextlib.suppress(FileNotFoundError):
            if backlog.changed_us(path) < before_us:
                late.append(path)
    if late:
        yield warning(
            "analytics.backlog",
            f"{counted(len(late), 'segment')} of events waiting for above "
            f"{LATE_S / 60:.0f} minutes",
            "look for the compactor in the relay's log; without runrelay: rmb_analytics compact",
        )
    broken = backlog.unreadable(folders)
    if broken:
        yield warning(
            "analytics.segments",
            f"{counted(len(broken), 'segment')} of events could not be read whole, such as "
            f"{broken[0]}",
            "what they lacked is in a gap; remove them once you have looked",
        )
    if another := _another_lake(folders):
        yield warning(
            "analytics.lake",
            (
                f"the results are from another lake, {another}: they do not contain the "
                "events recorded here"
            ),
            "let all hosts share one analytics.dir; if this lake took the place of that one: "
            "rmb_analytics takeover",
        )
    if not late and not broken:
        yield ok("analytics.backlog", "recorded events reach the lake")


def _another_lake(folders: places.Places) -> str:
    try:
        another = origin.another(folders)
    except (AnalyticsError, DatabaseError):
        return ""  # other checks report the database, and computations report the file
    return "" if another is None else str(another)
