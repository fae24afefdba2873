"""Spare the garbage collector the sessions of a worker.

Each session is some forty objects that the collector follows, and one that ends is freed without
it. In a rush of sign-ins it looked through all of them: once soon after they were made, an eighth
of a worker's time, and once more together with all those made before, 0.6 s at a stretch with
20,000 sessions. So where sessions are most of what was made since, it is told to pass over what
there is now (`gc.freeze`).

Cycles in what is passed over are never freed. So that is done after a collection, whose look was
through the newest of it; and without one for the next few times only where that look found nothing
to free, as it does: then nothing here makes cycles that end.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, Final

GC_THRESHOLDS: Final = (10_000, 100, 50)
"""Objects made between two collections, and collections of the younger generations before an older
one. With Python's own 700 a worker that opens sessions spent a seventh of its time on looking
through those it has, and a starting one a tenth on what it had imported. With 50,000 the longest
collection of a rush took 11 to 22 ms, with 10,000 it takes 3 to 7, for 2 us more a sign-in.
Traffic of messages causes hardly any."""
RUSH: Final = 200
"""Sessions opened since from which on they are most of what was made."""
LOOK_S: Final = 0.1
"""A rush opens some 300 in that time, fewer than make the collector begin."""
TRUSTED: Final = 20
"""Times without a look after one that found nothing to free."""


class SessionFreezer:
    """Watches the collector of this process until `stop`."""

    def __init__(self, opened: Callable[[], int]) -> None:
        """
        Args:
            opened: how many sessions this process has opened so far.
        """
        self._opened = opened
        self._frozen = self._looked = opened()  # as many had been opened, at the last time
        self._trusted = 0
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_S, self.look)
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        """Watch no more."""
        self._timer.cancel()
        gc.callbacks.remove(self._collected)

    def look(self) -> None:
        """Freeze what a rush made, where the last collection found nothing to free."""
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
