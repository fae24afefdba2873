"""Ranking of relays by how often they failed lately.

Per name a list of failure times; only those of the last `period_s` count, so a rank heals as
failures age out. Names are tried in ascending order of failures per hour; those that are equal are
shuffled, which spreads the load.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

DEFAULT_PERIOD_S: Final = 3600
"""The reference's `--ranker-period`."""

MAX_FAILURES: Final = 1000
"""Failure times kept per name, the latest: more than these make no difference to the order."""

MAX_NAMES: Final = 10_000
"""Names kept; twins choose theirs freely, so the one whose last failure is oldest makes room."""

_HOUR_S: Final = 3600


class Ranking:
    """Failures of named things over a sliding period; times are seconds of one clock."""

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
        """Takes note of a failure."""
        times = self._failures.pop(name, None)
        if times is None:
            times = deque(maxlen=MAX_FAILURES)
            if len(self._failures) >= self.max_names:
                del self._failures[next(iter(self._failures))]
        times.append(now)
        self._failures[name] = times

    def replace(self, name: str, times: Iterable[float]) -> None:
        """Makes these the failures of a name, the oldest first: somebody else keeps them too."""
        self._failures.pop(name, None)
        for time in times:
            self.fail(name, time)

    def rate_per_hour(self, name: str, now: float) -> float:
        """Returns the failures per hour over the period that ends now."""
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
        """Returns the names, the most reliable first.

        Args:
            names: what to choose from.
            now: end of the period that counts.
            shuffle: puts a list in random order, such as `random.Random(...).shuffle`.
        """
        ordered = list(names)
        shuffle(ordered)
        ordered.sort(key=lambda name: self.rate_per_hour(name, now))  # stable: ties stay shuffled
        return ordered
