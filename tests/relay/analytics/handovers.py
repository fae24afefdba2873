"""The worker's side of the handover, with a real packing process at the other end."""

from __future__ import annotations

from pathlib import Path

from relay.analytics.handover import Handover
from relay.analytics.journal import Rhythm
from rmbsite.logging import settings_of

RHYTHM = Rhythm(flush_s=0.05, segment_s=3600)


def start(folder: Path, rhythm: Rhythm = RHYTHM) -> Handover:
    """Start a handover that records into this folder; the event loop must be running."""
    found = Handover(
        {
            "root": str(folder),
            "relay": "a.example",
            "worker": "worker-0-packer",
            "fsync": "off",
            "rhythm": rhythm,
            "log": settings_of("info"),
        }
    )
    found.start()
    return found
