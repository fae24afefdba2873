"""The span of time a job computes, and whole periods of it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The days a job computes, UTC.

    Attributes:
        first: the first day.
        last: the last day, included.
    """

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"{self.last} is before {self.first}")

    @property
    def start_us(self) -> int:
        """Microseconds since 1970 of its begin."""
        return _us(self.first)

    @property
    def end_us(self) -> int:
        """Microseconds since 1970 of its end, not included."""
        return _us(self.last + timedelta(days=1))

    def days(self) -> list[date]:
        """Each day of it."""
        return [self.first + timedelta(n) for n in range((self.last - self.first).days + 1)]

    def months(self) -> list[str]:
        """Each month it touches, `YYYY-MM`."""
        return sorted({f"{day:%Y-%m}" for day in self.days()})


def next_month(day: date) -> date:
    """The first day of the month after a day's."""
    return (day.replace(day=1) + timedelta(days=31)).replace(day=1)


def _us(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
