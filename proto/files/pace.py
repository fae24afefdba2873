"""Number of chunks that a sender has in flight, and its time-out for each answer.

The time-out follows the measured response times, as in TCP (RFC 6298): their moving average plus
four times their deviation. The window grows by one chunk with each answer and is halved when an
answer does not come, so that a slow link, or a relay that limits its twins, is not flooded with
chunks that it drops.
"""

from __future__ import annotations

from proto.files.bounds import (
    FIRST_TIMEOUT_S,
    FIRST_WINDOW_CHUNKS,
    MAX_TIMEOUT_S,
    MIN_TIMEOUT_S,
)


class Pace:
    """Window and time-out of one upload.

    Args:
        longest: maximum window, in chunks.

    Attributes:
        window: number of chunks that may be in flight.
        timeout_s: seconds to wait for the answer to a request that is sent now.
    """

    def __init__(self, longest: int) -> None:
        self.window = min(FIRST_WINDOW_CHUNKS, longest)
        self.timeout_s = FIRST_TIMEOUT_S
        self._longest = longest
        self._mean_s: float | None = None
        self._deviation_s = 0.0
        self._reduced_at = float("-inf")

    def answered(self, took_s: float | None) -> None:
        """Record an answer.

        Args:
            took_s: response time; None if it is not known which of several requests was answered.
        """
        self.window = min(self.window + 1, self._longest)
        if took_s is not None:
            self._learn(took_s)
        self.heard()

    def heard(self) -> None:
        """Record that the receiver answers, and reset a time-out that was extended after losses."""
        if self._mean_s is not None:
            wanted_s = self._mean_s + 4 * self._deviation_s
            self.timeout_s = min(max(wanted_s, MIN_TIMEOUT_S), MAX_TIMEOUT_S)
        else:
            self.timeout_s = FIRST_TIMEOUT_S

    def lost(self, sent_at: float, now: float) -> None:
        """Record that a request sent at `sent_at` was not answered.

        Requests sent before the window was last reduced are ignored, as they say nothing about the
        new window.
        """
        if sent_at < self._reduced_at:
            return
        self._reduced_at = now
        self.window = max(1, self.window // 2)
        self.timeout_s = min(2 * self.timeout_s, MAX_TIMEOUT_S)

    def _learn(self, took_s: float) -> None:
        if self._mean_s is None:
            self._mean_s, self._deviation_s = took_s, took_s / 2
        else:
            off_s = abs(took_s - self._mean_s)
            self._deviation_s += (off_s - self._deviation_s) / 4
            self._mean_s += (took_s - self._mean_s) / 8
