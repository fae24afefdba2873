"""Charts as stand-alone SVG pictures, for pages without scripts and for use in documents.

A picture contains its own colours: those of the light scheme, which pages without scripts use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final
from xml.sax.saxutils import escape

from relay.dashboard.charts import Data, Reading, Values
from relay.dashboard.figures import Kind, write
from relay.dashboard.sparks import runs

HEIGHT: Final = 240
WIDTHS: Final = (640, 340)
"""Widths of a picture beside another one, and on a phone."""

COLOURS: Final = (
    "#7c3aed", "#0e7490", "#d97706", "#713f12", "#059669", "#0f172a", "#1d4ed8", "#64748b",
)  # fmt: skip
"""Colours of the lines, in order; console.css defines the same as --c-series-1 and so on. The first
six also differ clearly for viewers who cannot tell red from green."""

_TOP, _RIGHT, _BOTTOM, _LEFT = 34, 12, 24, 66
_MAX_POINTS: Final = 300
_INTERVALS: Final = 4
_LETTER: Final = 6.2
"""Approximate width of a letter."""


def draw(reading: Reading, data: Data, width: int = WIDTHS[0]) -> str:
    """Return the picture of one chart of a reading, as an SVG document."""
    kind = data.chart.kind
    step = max(1, math.ceil(len(reading.times) / _MAX_POINTS))
    lines = [thinned(line.values, step) for line in data.lines]
    drawn = _stacked(lines) if data.chart.stacked else lines
    known = [value for values in drawn for value in values if value is not None]
    low, top = bounds(known, kind)
    right, bottom = width - _RIGHT, HEIGHT - _BOTTOM

    def place(index: int, value: float, count: int) -> str:
        x = _LEFT + (right - _LEFT) * index / max(1, count - 1)
        y = bottom - (bottom - _TOP) * min(1.0, max(0.0, (value - low) / (top - low)))
        return f"{x:.1f} {y:.1f}"

    parts = [_grid(width, low, top, kind), _hours(width, reading)]
    for number, values in enumerate(drawn):
        colour = COLOURS[number % len(COLOURS)]
        for first, run in runs(values):
            points = [place(first + index, value, len(values)) for index, value in enumerate(run)]
            path = "L".join(points)
            left, end = points[0].split()[0], points[-1].split()[0]
            ground = f'<path d="M{left} {bottom}L{path}L{end} {bottom}Z" fill="{colour}"'
            if data.chart.stacked:
                parts.append(f"{ground}/>")
                continue
            if number == 0:  # a filled area distinguishes the first line
                parts.append(f'{ground} fill-opacity="0.11"/>')
            if len(run) == 1:
                path += f"L{path}"
            parts.append(f'<path d="M{path}" fill="none" stroke="{colour}"/>')
    if not known:
        parts.append(
            f'<text x="{width / 2:.0f}" y="{HEIGHT / 2:.0f}" text-anchor="middle">no '
            "figures in this period</text>"
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        f'width="{width}" height="{HEIGHT}" font-family="sans-serif" font-size="11" '
        'fill="#475569" stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round">'
        f"<title>{escape(data.chart.title)}</title>{''.join(parts)}{_legend(data, width)}</svg>"
    )


def thinned(values: Values, step: int) -> Values:
    """Replace each `step` values by the largest of them, so that no peak is lost."""
    if step == 1:
        return values
    return [
        max((each for each in values[at : at + step] if each is not None), default=None)
        for at in range(0, len(values), step)
    ]


def bounds(known: Sequence[float], kind: Kind) -> tuple[float, float]:
    """Return the lowest and highest value of a chart, with four round steps between them."""
    if kind is Kind.SHARE:
        least = min(known, default=0.0)
        return next(low for low in (0.99, 0.9, 0.0) if least >= low or not low), 1.0
    top = max(known, default=0.0)
    if top <= 0:
        return 0.0, 1.0 if kind is not Kind.NUMBER else float(_INTERVALS)
    base = 2 if kind in (Kind.BYTES, Kind.BYTE_RATE) else 10
    unit = base ** math.floor(math.log(top / _INTERVALS, base))
    steps = (1, 2) if base == 2 else (1, 2, 2.5, 5, 10)
    step = next(each * unit for each in steps if each * unit * _INTERVALS >= top * 0.9999)
    return 0.0, step * _INTERVALS


def _stacked(lines: Sequence[Values]) -> list[Values]:
    """Add to each line those after it, so that drawing one over another leaves its part visible."""
    found: list[Values] = []
    below: Values = [None] * (len(lines[0]) if lines else 0)
    for values in reversed(lines):
        below = [
            None if one is None and other is None else (one or 0.0) + (other or 0.0)
            for one, other in zip(values, below, strict=True)
        ]
        found.insert(0, below)
    return found


def _grid(width: int, low: float, top: float, kind: Kind) -> str:
    found = []
    for number in range(_INTERVALS + 1):
        value = low + (top - low) * number / _INTERVALS
        y = HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * number / _INTERVALS
        found.append(
            f'<path d="M{_LEFT} {y:.1f}H{width - _RIGHT}" stroke="#e2e8f0" stroke-width="1"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{write(value, kind)}</text>'
        )
    return "".join(found)


def _hours(width: int, reading: Reading) -> str:
    if len(reading.times) < 2:
        return ""
    count = 3 if width < WIDTHS[0] else 6
    first, last = reading.times[0], reading.times[-1]
    shape = {"7d": "%b %d", "1y": "%b %Y"}.get(reading.span, "%H:%M")
    found = []
    for number in range(count + 1):
        at = datetime.fromtimestamp(first + (last - first) * number / count, UTC)
        x = _LEFT + (width - _RIGHT - _LEFT) * number / count
        anchor = "end" if number == count else "middle" if number else "start"
        zone = " UTC" if number == count and shape == "%H:%M" else ""
        found.append(
            f'<text x="{x:.0f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{at:{shape}}{zone}</text>'
        )
    return "".join(found)


def _legend(data: Data, width: int) -> str:
    found, x, y = [], float(_LEFT), 10
    for number, line in enumerate(data.lines):
        last = next((each for each in reversed(line.values) if each is not None), None)
        text = f"{line.label} {write(last, data.chart.kind)}"
        if x + 18 + len(text) * _LETTER > width and x > _LEFT:
            x, y = float(_LEFT), y + 14
        if y > _TOP - 8:
            break  # omits the smallest if there are many
        found.append(
            f'<path d="M{x:.0f} {y}h12" stroke="{COLOURS[number % len(COLOURS)]}" '
            f'stroke-width="3" stroke-linecap="butt"/>'
            f'<text x="{x + 17:.0f}" y="{y + 4}">{escape(text)}</text>'
        )
        x += 18 + len(text) * _LETTER + 14
    return "".join(found)
