"""File for the bill: table `usage` of a month as CSV, with a last line to verify it.

    period,twin,accepted,accepted_bytes,delivered,delivered_bytes,dropped,session_seconds
    2026-03,7,120,64000,118,63000,1,86400
    2026-03,9,3,300,3,300,0,0
    all,2,123,64300,121,63300,1,86400

The last line has the number of lines of twins, and the sum of each other column. It lets a reader
detect a file that was truncated or changed by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

COLUMNS: Final = (
    *("period", "twin", "accepted", "accepted_bytes", "delivered", "delivered_bytes"),
    *("dropped", "session_seconds"),
)
"""Columns of the table, in its order; the docstring of the job describes them."""

ALL: Final = "all"
"""Value in the last line in place of the month."""


def lines(rows: Iterable[Sequence[str | int]]) -> Iterator[str]:
    """Yield the lines of the file, with their line ends; rows are read one by one and not kept.

    Args:
        rows: rows of one month, values in the order of COLUMNS, ascending by twin.

    Raises:
        ValueError: the rows are of two months, or not in order.
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
