"""Line charts that the server draws into a page: without scripts, in the page's own colours.

The drawing is stretched to the page's width and contains no text: the labels of its axes are HTML
beside it, equally large on a phone and on a desktop.
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
"""Maximum number of lines: one for each colour."""
DASHES: Final = ("none", "7 4", "1 4", "9 4 1 4", "13 5", "4 4", "9 4 1 4 1 4", "1 7")
"""Dashes and gaps by line. If lines coincide, the lower one shows through the gaps."""
_INTERVALS: Final = 4


class Curve(NamedTuple):
    """One line.

    Attributes:
        number: number of its colour, from 1.
        dash: lengths of its dashes and gaps.
        top: its highest value, formatted.
    """

    label: str
    number: int
    dash: str
    line: str
    area: str
    top: str


class Drawing(NamedTuple):
    """All lines, with the labels of the axes.

    Attributes:
        levels: labels of the vertical axis, from top to bottom.
        moments: labels of the time axis, from first to last.
        grid: heights of the horizontal grid lines.
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
    """Return the drawing of (label, values) at even steps; None is a gap.

    Args:
        lines: at most MAX_LINES, all of the same length.
        moments: labels of the time axis, evenly spread from the first to the last step.
        kind: quantity that the values measure.
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
        line.append(f"M{text}" if len(points) > 1 else f"M{text}h0.1")  # one point: a dot
        area.append(f"M{left} {HEIGHT}L{text}L{right} {HEIGHT}Z")
    return Curve(label, number, DASHES[number - 1], "".join(line), "".join(area), "")
