"""How far the clocks of the twins that signed in last are from this machine's.

One that is wrong belongs to a twin. Where those of most are, in the same direction, it is this
machine's: `rmb_doctor` says so.
"""

from __future__ import annotations

import statistics
from typing import Final

TWINS: Final = 64
WRONG_S: Final = 30
"""A difference that matters: tokens live for a minute."""


class TwinClocks:
    """Those of one worker."""

    def __init__(self) -> None:
        self._off_s: dict[int, int] = {}  # the twin that was seen last is the last

    def seen(self, twin: int, off_s: int) -> None:
        """Note a token.

        Args:
            twin: whose it is.
            off_s: how far its times are ahead of the clock here, where they cannot be right;
                negative: behind.
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
