"""Small line drawings beside a number: where it came from in the last hour.

A drawing is an SVG in the page, so that it is there without scripts. It says nothing that the
number and the words beside it do not say: those who cannot see it miss nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from django.utils.html import format_html
from django.utils.safestring import SafeString

WIDTH: Final = 120
HEIGHT: Final = 32
_EDGE: Final = 2
"""Room for the width of the line, above and below."""


def spark(values: Sequence[float | None]) -> SafeString:
    """The drawing of some values that follow each other at even steps; None is a gap.

    The lowest line is 0: a small change does not look like a large one.
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
            points.append((points[0][0] + 0.01, points[0][1]))  # a point is a dot
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
    """The pieces between gaps: the index of the first value, and the values."""
    run: list[float] = []
    for index, value in enumerate([*values, None]):
        if value is not None:
            run.append(value)
        elif run:
            yield index - len(run), run
            run = []
