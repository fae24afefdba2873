"""Differences between this machine's clock and those of the twins that signed in last.

A single wrong clock is the twin's. If most differ in the same direction, this machine's clock is
wrong, and `rmb_doctor` reports it.
"""

from __future__ import annotations

import statistics
from typing import Final

TWINS: Final = 64
WRONG_S: Final = 30
"""Seconds from which a difference matters: tokens live for a minute."""


class TwinClocks:
    """The clock differences of one worker's twins."""

    def __init__(self) -> None:
        self._off_s: dict[int, int] = {}  # in the order in which the twins were last seen

    def seen(self, twin: int, off_s: int) -> None:
        """Record a token.

        Args:
            twin: twin that signed it.
            off_s: seconds that its times are certainly ahead of the local clock; negative: behind.
        """
        self._off_s.pop(twin, None)
        self._off_s[twin] = off_s
        if len(self._off_s) > TWINS:
            del self._off_s[next(iter(self._off_s))]

    def figures(self) -> dict[str, float]:
        """Return figures for the metrics."""
        wrong = [off_s for off_s in self._off_s.values() if abs(off_s) > WRONG_S]
        return {
            "relay_twin_clocks_seen": len(self._off_s),
            "relay_twin_clocks_wrong": len(wrong),
            "relay_twin_clocks_off_seconds": statistics.median(wrong) if wrong else 0,
        }
