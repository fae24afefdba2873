"""Heat maps: tables of numbers whose background colours show how large they are.

A heat map is a plain table, so that it can be read aloud and copied; the colour only repeats the
number. Levels grow with the logarithm: traffic between relays differs by orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from relay.dashboard import figures
from relay.dashboard.figures import Kind

LEVELS: Final = 8
"""Number of background colours besides none; console.css has one class for each."""

MAX_SIDE: Final = 24
"""Maximum number of rows and of columns; with more, the last one is the sum of the smallest."""

OTHERS: Final = "others"


class Cell(NamedTuple):
    """A number.

    Attributes:
        level: background colour, 0 to LEVELS.
        exact: exact value, shown on hover.
    """

    level: int
    text: str
    exact: str


class Line(NamedTuple):
    """A row with its sum."""

    label: str
    cells: list[Cell]
    total: Cell


class Heat(NamedTuple):
    """The whole map.

    Attributes:
        totals: sums of the columns, with the sum of everything at the end.
        many: whether there are so many columns that their names are written vertically.
    """

    columns: list[str]
    lines: list[Line]
    totals: list[Cell]
    many: bool


MANY: Final = 8


def draw(values: Mapping[tuple[str, str], int], kind: Kind) -> Heat:
    """Return the map of (row, column) -> number, the largest rows and columns first."""
    rows = _largest({row: 0 for row, _ in values}, values, 0)
    columns = _largest({column: 0 for _, column in values}, values, 1)
    found: dict[tuple[str, str], int] = {}
    for (row, column), value in values.items():
        place = (row if row in rows else OTHERS, column if column in columns else OTHERS)
        found[place] = found.get(place, 0) + value
    top = max(found.values(), default=0)
    lines = []
    for row in rows:
        numbers = [found.get((row, column), 0) for column in columns]
        cells = [
            _cell(value, top, kind, f"{row} to {column}")
            for column, value in zip(columns, numbers, strict=True)
        ]
        lines.append(Line(row, cells, _cell(sum(numbers), 0, kind, f"{row} in total")))
    totals = [
        _cell(sum(found.get((row, column), 0) for row in rows), 0, kind, f"to {column} in total")
        for column in columns
    ]
    totals.append(_cell(sum(values.values()), 0, kind, "all"))
    return Heat(columns, lines, totals, len(columns) > MANY)


def level(value: int, top: int) -> int:
    """Return the background level of a value, if the largest value is `top`."""
    if value <= 0 or top <= 0:
        return 0
    return max(1, math.ceil(LEVELS * math.log1p(value) / math.log1p(top)))


def _largest(sums: dict[str, int], values: Mapping[tuple[str, str], int], side: int) -> list[str]:
    for place, value in values.items():
        sums[place[side]] += value
    names = sorted(sums, key=lambda name: (-sums[name], name))
    return names if len(names) <= MAX_SIDE else [*names[: MAX_SIDE - 1], OTHERS]


def _cell(value: int, top: int, kind: Kind, told: str) -> Cell:
    return Cell(
        level(value, top), figures.write(value, kind), f"{told}: {figures.exact(value, kind)}"
    )
