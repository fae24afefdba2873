"""Curves that the server draws into a page: no script, and the page's own colours.

The drawing is stretched to the page's width and says nothing by text: what stands at its axes is
HTML beside it, as large on a phone as on a desk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from relay.dashboard import figures
from relay.dashboard.chart_svg import bounds, thinned
from relay.dashboard.figures import Kind
from relay.dashboard.sparks import runs

WIDTH: Final = 1000
HEIGHT: Final = 240
MAX_POINTS: Final = 1000
MAX_LINES: Final = 8
"""As many as there are colours."""
DASHES: Final = ("none", "7 4", "1 4", "9 4 1 4", "13 5", "4 4", "9 4 1 4 1 4", "1 7")
"""Lines that are equal lie upon each other: through the gaps of the upper one the lower is seen."""
_INTERVALS: Final = 4


class Curve(NamedTuple):
    """One line.

    Attributes:
        number: of its colour, from 1.
        dash: lengths of its dashes and gaps.
        top: its highest value.
    """

    label: str
    number: int
    dash: str
    line: str
    area: str
    top: str


class Drawing(NamedTuple):
    """All lines with what stands at the axes.

    Attributes:
        levels: at the left, from the top down.
        moments: below, from the first to the last.
        grid: heights of the lines across.
    """

    curves: list[Curve]
    levels: list[str]
    moments: list[str]
    grid: list[float]
    width: int = WIDTH
    height: int = HEIGHT


def draw(
    lines: Sequence[tuple[str, Sequence[float | None]]], moments: Sequence[str], kind: Kind
) -> Drawing:
    """The drawing of (label, values) at even steps; None is a gap.

    Args:
        lines: at most MAX_LINES, all of the same length.
        moments: some words for the time, evenly spread from the first to the last step.
        kind: of the values.
    """
    count = max((len(values) for _, values in lines), default=0)
    step = max(1, math.ceil(count / MAX_POINTS))
    thin = [(label, thinned(list(values), step)) for label, values in lines[:MAX_LINES]]
    known = [value for _, values in thin for value in values if value is not None]
    low, top = bounds(known, kind)
    curves = [
        _curve(label, number, values, low, top)
        for number, (label, values) in enumerate(thin, start=1)
    ]
    levels = [
        figures.write(top - (top - low) * each / _INTERVALS, kind) for each in range(_INTERVALS + 1)
    ]
    grid = [HEIGHT * each / _INTERVALS for each in range(1, _INTERVALS)]
    drawn = Drawing(curves, levels, list(moments), grid)
    return drawn._replace(
        curves=[
            curve._replace(top=figures.write(_top(values), kind))
            for curve, (_, values) in zip(curves, lines, strict=False)
        ]
    )


def _top(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _curve(label: str, number: int, values: list[float | None], low: float, top: float) -> Curve:
    step = WIDTH / max(1, len(values) - 1)

    def place(index: int, value: float) -> str:
        part = min(1.0, max(0.0, (value - low) / (top - low)))
        return f"{index * step:.1f} {HEIGHT - part * HEIGHT:.1f}"

    line, area = [], []
    for first, run in runs(values):
        points = [place(first + index, value) for index, value in enumerate(run)]
        left, right = (point.split()[0] for point in (points[0], points[-1]))
        text = "L".join(points)
        line.append(f"M{text}" if len(points) > 1 else f"M{text}h0.1")  # a point is a dot
        area.append(f"M{left} {HEIGHT}L{text}L{right} {HEIGHT}Z")
    return Curve(label, number, DASHES[number - 1], "".join(line), "".join(area), "")
