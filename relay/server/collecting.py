"""Keep the garbage collector from scanning the sessions of a worker.

Each session consists of some forty objects that the collector tracks, and a session that ends is
freed without its help. During a rush of sign-ins the collector used to scan all of them: once soon
after their creation, which took an eighth of a worker's time, and once more together with all older
ones, 0.6 s at a stretch with 20,000 sessions. So if most of the new objects belong to sessions, the
worker tells the collector to skip everything that exists (`gc.freeze`).

Cycles among skipped objects are never freed. So the worker freezes after a collection, which has
just scanned the newest of them. It freezes without a collection, for a limited number of times,
only if the last one found nothing to free, as is usual: then nothing here creates cycles that end.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, Final

GC_THRESHOLDS: Final = (10_000, 100, 50)
"""Objects created between two collections, and collections of the younger generations before one of
an older. With Python's default of 700, a worker that opens sessions spent a seventh of its time
scanning those it had, and a starting one a tenth scanning its imports. With 50,000, the longest
collection of a rush took 11 to 22 ms; with 10,000 it takes 3 to 7, for 2 us more per sign-in.
Message traffic causes hardly any collections."""
RUSH: Final = 200
"""Sessions opened since the last freeze from which on most new objects belong to them."""
LOOK_S: Final = 0.1
"""Seconds between two checks; a rush opens some 300 sessions in that time, too few for a
collection."""
TRUSTED: Final = 20
"""Number of freezes without a collection after one that found nothing to free."""


class SessionFreezer:
    """Watches the collector of this process until `stop`."""

    def __init__(self, opened: Callable[[], int]) -> None:
        """Begin to watch.

        Args:
            opened: Returns how many sessions this process has opened so far.
        """
        self._opened = opened
        self._frozen = self._looked = opened()  # sessions opened by then
        self._trusted = 0
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_S, self.look)
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        gc.callbacks.remove(self._collected)

    def look(self) -> None:
        """Freeze what a rush created, if the last collection found nothing to free."""
        self._timer.cancel()
        self._timer = self._loop.call_later(LOOK_S, self.look)
        before, self._looked = self._looked, self._opened()
        if self._trusted and self._looked - max(before, self._frozen) >= RUSH:
            self._trusted -= 1
            self._freeze()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and self._opened() - self._frozen >= RUSH:
            self._trusted = 0 if info["collected"] else TRUSTED
            self._freeze()

    def _freeze(self) -> None:
        self._frozen = self._opened()
        gc.freeze()
