"""Ranking of relays by how often they failed recently.

Each name has a list of failure times. Only those of the last `period_s` count, so a rank recovers
as failures age out. Names are tried in ascending order of failures per hour; names with equal rates
are shuffled, which spreads the load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

DEFAULT_PERIOD_S: Final = 3600
"""Default of the reference relay's `--ranker-period`."""

MAX_FAILURES: Final = 1000
"""Maximum number of failure times kept per name: more would not change the order."""

MAX_NAMES: Final = 10_000
"""Maximum number of names kept. Twins choose them freely, so the name with the oldest last failure
is discarded when there are more."""

_HOUR_S: Final = 3600


class Ranking:
    """Failures by name over a sliding period; times are seconds of one clock."""

    __slots__ = ("_failures", "max_names", "period_s")

    def __init__(self, period_s: float = DEFAULT_PERIOD_S, max_names: int = MAX_NAMES) -> None:
        if period_s <= 0:
            raise ValueError("the ranking period must be above 0")
        self.period_s = period_s
        self.max_names = max_names
        self._failures: dict[str, deque[float]] = {}  # the name that failed last is at the end

    def __len__(self) -> int:
        return len(self._failures)

    def fail(self, name: str, now: float) -> None:
        """Record a failure."""
        times = self._failures.pop(name, None)
        if times is None:
            times = deque(maxlen=MAX_FAILURES)
            if len(self._failures) >= self.max_names:
                del self._failures[next(iter(self._failures))]
        times.append(now)
        self._failures[name] = times

    def replace(self, name: str, times: Iterable[float]) -> None:
        """Replace the failures of a name by those kept elsewhere, oldest first."""
        self._failures.pop(name, None)
        for time in times:
            self.fail(name, time)

    def rate_per_hour(self, name: str, now: float) -> float:
        """Return the failures per hour over the period that ends now."""
        times = self._failures.get(name)
        if times is None:
            return 0.0
        oldest = now - self.period_s
        while times and times[0] <= oldest:
            times.popleft()
        if not times:
            del self._failures[name]
        return len(times) * _HOUR_S / self.period_s

    def order(
        self, names: Iterable[str], now: float, shuffle: Callable[[list[str]], None]
    ) -> list[str]:
        """Return the names, most reliable first.

        Args:
            names: names to sort.
            now: end of the period that counts.
            shuffle: function that puts a list in random order, such as
                `random.Random(...).shuffle`.
        """
        ordered = list(names)
        shuffle(ordered)
        ordered.sort(key=lambda name: self.rate_per_hour(name, now))  # stable: ties stay shuffled
        return ordered
