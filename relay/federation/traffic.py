"""Present traffic of each relay: the growth of its counts over a minute.

Redis holds totals. Code that reads the state of all relays records it here, in this process: the
operator site does so every few seconds, and for each page that shows relays.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from relay.federation.live import PartnerState

WINDOW_S: Final = 75.0
"""Seconds for which samples are kept: a minute and a margin, as samples may be 30 s apart."""
APART_S: Final = 4.0
"""Minimum seconds between two samples; closer ones are dropped."""
MIN_SPAN_S: Final = 2.0
"""Minimum age in seconds of samples used for rates, as counts are written once a second."""


class Traffic(NamedTuple):
    """Messages per second."""

    out: float
    into: float

    @property
    def both(self) -> float:
        return self.out + self.into


class _Look(NamedTuple):
    at: float
    counts: dict[str, tuple[int, int]]


class Meter:
    """Samples of the last minute."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque()
        self._lock = threading.Lock()

    def note(self, partners: Iterable[PartnerState], now: float | None = None) -> None:
        """Record a sample of all relays' counts.

        Args:
            now: monotonic seconds; the clock of this process unless given.
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
        """Return the traffic by relay, without relays for which it is not known yet.

        Args:
            partners: the present state of the relays.
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
"""The meter of this process."""
