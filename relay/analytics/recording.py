"""Journals as this installation is configured, for workers and drainers that record.

Imported only where `analytics.record` is on.
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
    """A journal for one process, not started yet.

    Args:
        config: the settings.
        worker: name of the process among those of this relay.
        clock: unix seconds.
        held_beside: as `SegmentWriter` has it.
    """
    wanted, rhythm = config.analytics, rhythm_of(config)
    writer = SegmentWriter(
        *(places.configured(), relay_name(config), worker, wanted.fsync),
        *(rhythm.flush_s, held_beside),
    )
    return Journal(writer, clock, rhythm)


def rhythm_of(config: Any) -> Rhythm:
    """How often files are written."""
    wanted = config.analytics
    return Rhythm(wanted.flush_ms / 1000, wanted.segment_s, wanted.segment_bytes)


def relay_name(config: Any) -> str:
    """Of this relay; commands may be run without it."""
    return next(iter(config.relay.domains), "")
