"""Journals as configured for this installation, for workers and drainers that record.

Imported only if `analytics.record` is on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from relay.analytics import places
from relay.analytics.journal import Journal, Rhythm
from relay.analytics.writer import SegmentWriter


def journal(
    config: Any, worker: str, clock: Callable[[], float] = time.time, held_beside: int = 0
) -> Journal:
    """Return a journal for one process, which is not started yet.

    Args:
        config: settings of the relay.
        worker: name of the process among those of this relay.
        clock: function that returns seconds since 1970.
        held_beside: as for `SegmentWriter`.
    """
    wanted, rhythm = config.analytics, rhythm_of(config)
    writer = SegmentWriter(
        *(places.configured(), relay_name(config), worker, wanted.fsync),
        *(rhythm.flush_s, held_beside),
    )
    return Journal(writer, clock, rhythm)


def rhythm_of(config: Any) -> Rhythm:
    """Return how often files are written."""
    wanted = config.analytics
    return Rhythm(wanted.flush_ms / 1000, wanted.segment_s, wanted.segment_bytes)


def relay_name(config: Any) -> str:
    """Return the name of this relay; "" if none is configured, as for some commands."""
    return next(iter(config.relay.domains), "")
