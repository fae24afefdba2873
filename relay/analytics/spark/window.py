"""The time span that a job computes, and its periods."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime, timedelta


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Days that a job computes, UTC.

    Attributes:
        first: first day.
        last: last day, included.
    """

    first: date
    last: date

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"{self.last} is before {self.first}")

    @property
    def start_us(self) -> int:
        """Start of the first day, in microseconds since 1970."""
        return _us(self.first)

    @property
    def end_us(self) -> int:
        """End of the last day, in microseconds since 1970, not included."""
        return _us(self.last + timedelta(days=1))

    def days(self) -> list[date]:
        """Return all days of the window."""
        return [self.first + timedelta(n) for n in range((self.last - self.first).days + 1)]

    def months(self) -> list[str]:
        """Return all months that the window touches, as `YYYY-MM`."""
        return sorted({f"{day:%Y-%m}" for day in self.days()})


def next_month(day: date) -> date:
    """Return the first day of the month after a day's month."""
    return (day.replace(day=1) + timedelta(days=31)).replace(day=1)


def _us(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000_000
