"""Bars of HTML and SVG that the server draws: no script, no style of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from relay.dashboard import figures
from relay.dashboard.figures import Kind


class Bar(NamedTuple):
    """One line of a chart of bars.

    Attributes:
        percent: of the longest one.
        text: the value, as it is written beside it.
        exact: all there is to say of it, on hover.
    """

    label: str
    percent: float
    text: str
    exact: str


def bars(values: Iterable[tuple[str, float]], kind: Kind) -> list[Bar]:
    """(label, value) as lines, one below the other."""
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
    """One upright bar of a strip, in the units of its drawing.

    Attributes:
        title: said on hover.
    """

    x: int
    y: float
    height: float
    title: str


HEIGHT: Final = 40
LEAST: Final = 1.5
"""Height of a value that is not nothing."""


def strip(values: Sequence[tuple[str, float]]) -> list[Column]:
    """(title, value) side by side, as high as `HEIGHT` at most."""
    largest = max((value for _, value in values), default=0) or 1
    heights = (max(LEAST, HEIGHT * value / largest) if value else 0 for _, value in values)
    return [
        Column(place, round(HEIGHT - height, 2), round(height, 2), title)
        for place, ((title, _), height) in enumerate(zip(values, heights, strict=True))
    ]
