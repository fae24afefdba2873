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

WINDOW_S: Final = 75.0
"""A minute, with some room: where looking takes long, it is done every half minute."""
APART_S: Final = 4.0
"""Looks that follow each other closer than that are one: fewer are kept."""
MIN_SPAN_S: Final = 2.0
"""Counts are written once a second: over less than this their growth says nothing."""


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

    def rates(
        self, partners: Iterable[PartnerState], now: float | None = None
    ) -> dict[str, Traffic]:
        """What goes on with relays; those of whom nothing can be said yet are left out.

        Args:
            partners: as they are now.
        """
        at = time.monotonic() if now is None else now
        with self._lock:
            looks = [look for look in self._looks if MIN_SPAN_S <= at - look.at <= WINDOW_S]
        found = {}
        for partner in partners:
            first = next((look for look in looks if partner.domain in look.counts), None)
            if first is not None:
                sent, received = first.counts[partner.domain]
                elapsed_s = at - first.at
                found[partner.domain] = Traffic(
                    # A relay that was forgotten begins at zero again.
                    max(0, partner.sent - sent) / elapsed_s,
                    max(0, partner.received - received) / elapsed_s,
                )
        return found


meter: Final = Meter()
"""That of this process."""
