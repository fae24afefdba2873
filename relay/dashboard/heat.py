"""Heat maps: a table of numbers whose grounds tell how large they are.

It is a plain table, so that it is read out and copied as one; the ground only repeats what the
numbers say. Levels grow with the logarithm: traffic between relays differs by orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from relay.dashboard import figures
from relay.dashboard.figures import Kind

LEVELS: Final = 8
"""Grounds, beside none; console.css has one class for each."""

MAX_SIDE: Final = 24
"""Rows and columns that are shown by name; the smallest of more are added up as the last."""

OTHERS: Final = "others"


class Cell(NamedTuple):
    """A number.

    Attributes:
        level: of its ground, 0 to LEVELS.
        exact: all there is to say of it, on hover.
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
        totals: of the columns, and of everything as the last.
        many: there are so many columns that their names stand upright.
    """

    columns: list[str]
    lines: list[Line]
    totals: list[Cell]
    many: bool


MANY: Final = 8


def draw(values: Mapping[tuple[str, str], int], kind: Kind) -> Heat:
    """The map of (row, column) -> number, the largest rows and columns first."""
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
    """How strong the ground of a value is, where the largest one is `top`."""
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
