"""Where analytics keeps its files.

segments/                                   what the relays' workers wrote, as it came
events/date=YYYY-MM-DD/hour=HH/*.parquet    all events
gaps/*.json                                 what was lost before it got there
results/<table>/<period>/<run>/*.parquet    of the jobs; the ledger says which run counts
checkpoints/                                of the stream
cache/                                      of Spark; may be deleted when nothing runs
lake.id                                     which lake it is (relay.analytics.origin)
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from django.conf import settings

DRAFT = "_tmp-"
"""Begin of the names of what is not whole yet: readers leave such names out."""


@dataclasses.dataclass(frozen=True, slots=True)
class Places:
    """The folders below one root. None is made before something is written into it."""

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
    """Those of this installation."""
    chosen = settings.RMB.analytics.dir
    root = Path(os.path.expanduser(chosen)) if chosen else settings.RMB.data_dir / "analytics"
    return Places(root.absolute())
