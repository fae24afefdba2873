"""How much goes to and comes from each relay now: the growth of its counts over a minute.

Redis holds totals. Whoever looks at all relays notes them here, in this process: the operator site
does so every few seconds, and each page that shows them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from relay.federation.live import PartnerState

WINDOW_S: Final = 60.0
APART_S: Final = 4.0
"""Looks that follow each other closer than that are one: fewer are kept, of about a minute."""
FRESH_S: Final = 20.0
"""Without a look for so long the rates are not those of now."""


class Traffic(NamedTuple):
    """Messages a second."""

    out: float
    into: float

    @property
    def both(self) -> float:
        return self.out + self.into


class _Look(NamedTuple):
    at: float
    counts: dict[str, tuple[int, int]]


class Meter:
    """The looks of the last minute."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()
        self._lock = threading.Lock()

    def note(self, partners: Iterable[PartnerState], now: float | None = None) -> None:
        """What all relays' counts are.

        Args:
            now: by a clock that is not set; that of this process unless given.
        """
        at = time.monotonic() if now is None else now
        with self._lock:
            if self._looks and at - self._looks[-1].at < APART_S:
                return
            counts = {each.domain: (each.sent, each.received) for each in partners}
            self._looks.append(_Look(at, counts))
            while at - self._looks[0].at > WINDOW_S:
                self._looks.popleft()

    def read(self, now: float | None = None) -> dict[str, Traffic]:
        """What goes on with each relay; those of whom nothing can be said are left out."""
        at = time.monotonic() if now is None else now
        with self._lock:
            looks = [look for look in self._looks if at - look.at <= WINDOW_S]
        if not looks or at - looks[-1].at > FRESH_S:
            return {}
        last = looks[-1]
        found = {}
        for domain, (sent, received) in last.counts.items():
            first = next(look for look in looks if domain in look.counts)
            elapsed_s = last.at - first.at
            if elapsed_s > 0:
                before = first.counts[domain]
                found[domain] = Traffic(
                    # A relay that was forgotten begins at zero again.
                    max(0, sent - before[0]) / elapsed_s,
                    max(0, received - before[1]) / elapsed_s,
                )
        return found


meter: Final = Meter()
"""That of this process."""
