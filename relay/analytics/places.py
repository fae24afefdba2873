"""Folders of the analytics.

segments/                                   what the workers of the relay recorded, as written
events/date=YYYY-MM-DD/hour=HH/*.parquet    all events
gaps/*.json                                 events lost before they got there
results/<table>/<period>/<run>/*.parquet    results of the jobs; the ledger names the current run
checkpoints/                                checkpoints of the stream
cache/                                      files of Spark; may be deleted when no job runs
lake.id                                     identity of the lake (relay.analytics.origin)
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from django.conf import settings

DRAFT = "_tmp-"
"""Prefix of the names of incomplete files, which readers skip."""


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """Folders below one root. Each is created when something is first written into it."""

    root: Path

    @property
    def segments(self) -> Path:
        return self.root / "segments"

    @property
    def events(self) -> Path:
        return self.root / "events"

    @property
    def gaps(self) -> Path:
        return self.root / "gaps"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def cache(self) -> Path:
        return self.root / "cache"


def configured() -> Places:
    """Return the folders of this installation."""
    chosen = settings.RMB.analytics.dir
    root = Path(os.path.expanduser(chosen)) if chosen else settings.RMB.data_dir / "analytics"
    return Places(root.absolute())
