"""Exponential back-off: each wait is a multiple of the one before, up to a maximum.

A random part is added, so that many clients that failed together do not return together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Parameters of a series of waits."""

    first_s: float
    """Wait after the first failure."""
    longest_s: float
    """Maximum wait, without jitter."""
    factor: float = 2.0
    """Ratio of each wait to the one before."""
    jitter: float = 0.0
    """Maximum random part added to a wait, as a share of it: 0.5 makes 1 s anything up to 1.5 s."""

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.longest_s:
            raise ValueError("the first wait must be above 0 and not above the longest")
        if self.factor < 1 or self.jitter < 0:
            raise ValueError("the factor must be at least 1 and the jitter at least 0")

    def delay_s(self, failures: int, random: Callable[[], float]) -> float:
        """Return the wait after a number of failures in a row.

        Args:
            failures: number of failures; 0 gives no wait.
            random: function that returns a number from 0 up to 1, such as
                `random.Random(...).random`.
        """
        if failures <= 0:
            return 0.0
        try:
            wait_s = min(self.longest_s, self.first_s * self.factor ** (failures - 1))
        except OverflowError:
            wait_s = self.longest_s
        return wait_s * (1 + self.jitter * random())
