"""The bill's file: table `usage` of a month as CSV, with a last line to check it by.

    period,twin,accepted,accepted_bytes,delivered,delivered_bytes,dropped,session_seconds
    2026-03,7,120,64000,118,63000,1,86400
    2026-03,9,3,300,3,300,0,0
    all,2,123,64300,121,63300,1,86400

The last line has the number of lines above it (of twins) and the sum of each other column: who
reads a file that was cut, or changed by hand, finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

COLUMNS: Final = (
    *("period", "twin", "accepted", "accepted_bytes", "delivered", "delivered_bytes"),
    *("dropped", "session_seconds"),
)
"""Of the table, in its order; the job says what they mean."""

ALL: Final = "all"
"""Stands for the month in the last line."""


def lines(rows: Iterable[Sequence[str | int]]) -> Iterator[str]:
    """The file, line by line, each with its end; rows are taken as they come and not kept.

    Args:
        rows: of one month, values in the order of COLUMNS, ascending by twin.

    Raises:
        ValueError: they are of two months, or not in order.
    """
    yield ",".join(COLUMNS) + "\n"
    sums = [0] * (len(COLUMNS) - 2)
    count = 0
    before: tuple[str, int] | None = None
    for period, twin, *numbers in rows:
        here = (str(period), int(twin))
        if before is not None and (here[0] != before[0] or here[1] <= before[1]):
            raise ValueError(f"twin {here[1]} of {here[0]} after {before[1]} of {before[0]}")
        before = here
        sums = [total + int(number) for total, number in zip(sums, numbers, strict=True)]
        count += 1
        yield ",".join(map(str, (period, twin, *numbers))) + "\n"
    yield ",".join(map(str, (ALL, count, *sums))) + "\n"
