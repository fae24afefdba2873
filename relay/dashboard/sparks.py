"""Sparklines: small line charts of the last hour beside a number.

A sparkline is an SVG in the page, so that it works without scripts. The number and the words beside
it contain the same information, for readers who cannot see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from django.utils.html import format_html
from django.utils.safestring import SafeString

WIDTH: Final = 120
HEIGHT: Final = 32
_EDGE: Final = 2
"""Space above and below for the width of the line."""


def spark(values: Sequence[float | None]) -> SafeString:
    """Return the chart of values at even steps; None is a gap.

    The bottom of the chart is 0, so that a small change does not look like a large one.
    """
    known = [value for value in values if value is not None]
    top = max(known, default=0.0) or 1.0
    step = WIDTH / max(1, len(values) - 1)

    def place(index: int, value: float) -> tuple[float, float]:
        part = min(1.0, max(0.0, value / top))
        return index * step, HEIGHT - _EDGE - part * (HEIGHT - 2 * _EDGE)

    line, area = [], []
    for first, run in runs(values):
        points = [place(first + index, value) for index, value in enumerate(run)]
        if len(points) == 1:
            points.append((points[0][0] + 0.01, points[0][1]))  # a single point becomes a dot
        text = "L".join(f"{x:.4g} {y:.4g}" for x, y in points)
        line.append(f"M{text}")
        area.append(f"M{points[0][0]:.4g} {HEIGHT}L{text}L{points[-1][0]:.4g} {HEIGHT}Z")
    return format_html(
        '<svg class="c-spark" viewBox="0 0 {} {}" preserveAspectRatio="none" aria-hidden="true">'
        '<path class="c-spark-area" d="{}"/><path class="c-spark-line" d="{}"/></svg>',
        WIDTH,
        HEIGHT,
        "".join(area),
        "".join(line),
    )


def runs(values: Sequence[float | None]) -> Iterator[tuple[int, list[float]]]:
    """Yield the stretches between gaps: the index of the first value, and the values."""
    run: list[float] = []
    for index, value in enumerate([*values, None]):
        if value is not None:
            run.append(value)
        elif run:
            yield index - len(run), run
            run = []
