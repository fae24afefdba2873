"""Bar charts drawn by the server as HTML and SVG, without scripts and inline styles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from relay.dashboard import figures
from relay.dashboard.figures import Kind


class Bar(NamedTuple):
    """One line of a bar chart.

    Attributes:
        percent: length, as a percentage of the longest bar.
        text: formatted value, shown beside the bar.
        exact: exact value, shown on hover.
    """

    label: str
    percent: float
    text: str
    exact: str


def bars(values: Iterable[tuple[str, float]], kind: Kind) -> list[Bar]:
    """Return (label, value) pairs as bars, one below the other."""
    found = list(values)
    largest = max((value for _, value in found), default=0) or 1
    return [
        Bar(
            label,
            round(100 * value / largest, 2),
            figures.write(value, kind),
            figures.exact(value, kind),
        )
        for label, value in found
    ]


class Column(NamedTuple):
    """One vertical bar of a strip, in units of the drawing.

    Attributes:
        title: text shown on hover.
    """

    x: int
    y: float
    height: float
    title: str


HEIGHT: Final = 40
LEAST: Final = 1.5
"""Minimum height of a value that is not 0."""


def strip(values: Sequence[tuple[str, float]]) -> list[Column]:
    """Return (title, value) pairs as bars side by side, at most `HEIGHT` high."""
    largest = max((value for _, value in values), default=0) or 1
    heights = (max(LEAST, HEIGHT * value / largest) if value else 0 for _, value in values)
    return [
        Column(place, round(HEIGHT - height, 2), round(height, 2), title)
        for place, ((title, _), height) in enumerate(zip(values, heights, strict=True))
    ]
