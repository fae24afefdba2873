"""Exponential back-off: each wait is a multiple of the one before, up to a longest one.

Chance is added on top, so that many who failed together do not come back together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """The rule of a series of waits."""

    first_s: float
    """Wait after the first failure."""
    longest_s: float
    """No wait is longer, jitter aside."""
    factor: float = 2.0
    """Each wait is this many times the one before."""
    jitter: float = 0.0
    """Largest part of a wait that is added to it by chance: 0.5 makes 1 s anything up to 1.5 s."""

    def __post_init__(self) -> None:
        if not 0 < self.first_s <= self.longest_s:
            raise ValueError("the first wait must be above 0 and not above the longest")
        if self.factor < 1 or self.jitter < 0:
            raise ValueError("the factor must be at least 1 and the jitter at least 0")

    def delay_s(self, failures: int, random: Callable[[], float]) -> float:
        """Returns the wait after that many failures in a row.

        Args:
            failures: 0 gives no wait.
            random: returns a number from 0 up to 1, such as `random.Random(...).random`.
        """
        if failures <= 0:
            return 0.0
        try:
            wait_s = min(self.longest_s, self.first_s * self.factor ** (failures - 1))
        except OverflowError:
            wait_s = self.longest_s
        return wait_s * (1 + self.jitter * random())
