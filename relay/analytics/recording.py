"""Recorders as this installation is configured, for workers and drainers that record.

Imported only where `analytics.record` is on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from relay.analytics import places
from relay.analytics.journal import Journal, Rhythm
from relay.analytics.writer import SegmentWriter


def journal(config: Any, worker: str, clock: Callable[[], float] = time.time) -> Journal:
    """A journal for one process, not started yet.

    Args:
        config: the settings.
        worker: name of the process among those of this relay.
        clock: unix seconds.
    """
    wanted = config.analytics
    flush_s = wanted.flush_ms / 1000
    relay = next(iter(config.relay.domains), "")  # commands may be run without its name
    writer = SegmentWriter(places.configured(), relay, worker, wanted.fsync, flush_s)
    rhythm = Rhythm(flush_s, wanted.segment_s, wanted.segment_bytes)
    return Journal(writer, clock, rhythm)
