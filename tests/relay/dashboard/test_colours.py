"""The lines of charts: visible on their backgrounds, and distinguishable with any colour vision."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest
from django.template.loader import render_to_string

from relay.dashboard import chart_svg, curves
from relay.dashboard.figures import Kind

FOLDER = Path(chart_svg.__file__).parent
CONSOLE = (FOLDER / "static" / "relay_dashboard" / "console.css").read_text()
LIGHT, DARK = (
    tuple(re.findall(r"--c-series-\d: (#[0-9a-f]{6})", block))
    for block in re.findall(r"\{([^{}]*--c-series-1: [^{}]*)\}", CONSOLE)
)
THEMES = {"light": (LIGHT, "#ffffff"), "dark": (DARK, "#0f172a")}

LINES = 6
"""Most lines that a page shows."""
FAR = 20.0
"""Difference in CIELAB that is obvious in a thin line; 2 is just visible side by side."""

# Machado, Oliveira, Fernandes 2009, full severity, of linear RGB.
SIGHTS = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
XYZ = ((0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8729))
"""Matrix from linear RGB to XYZ, white being 1."""

Triple = tuple[float, ...]


def linear(colour: str) -> Triple:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return tuple(
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )


def times(matrix: tuple[Triple, ...], vector: Triple) -> Triple:
    return tuple(
        min(1.0, max(0.0, sum(a * b for a, b in zip(row, vector, strict=True)))) for row in matrix
    )


def lab(rgb: Triple) -> Triple:
    x, y, z = (
        each ** (1 / 3) if each > 0.008856 else 7.787 * each + 16 / 116 for each in times(XYZ, rgb)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def contrast(one: str, other: str) -> float:
    low, high = sorted(times(XYZ, linear(each))[1] for each in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
def test_each_is_seen_on_its_ground(theme: str) -> None:
    colours, ground = THEMES[theme]
    assert len(colours) == 8
    assert min(contrast(each, ground) for each in colours) >= 3


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("theme", THEMES)
def test_they_are_told_from_each_other(theme: str, sight: str) -> None:
    seen = [lab(times(SIGHTS[sight], linear(each))) for each in THEMES[theme][0][:LINES]]
    near = {
        (one + 1, other + 1): round(math.dist(seen[one], seen[other]), 1)
        for one, other in itertools.combinations(range(LINES), 2)
        if math.dist(seen[one], seen[other]) < FAR
    }
    assert not near


def test_pictures_and_the_report_have_the_same() -> None:
    report = (FOLDER / "templates" / "relay_dashboard" / "report.css").read_text()
    assert chart_svg.COLOURS == LIGHT
    assert tuple(re.findall(r"swatch-\d \{ color: (#[0-9a-f]{6});", report)) == LIGHT


def test_equal_lines_are_seen_through_each_other() -> None:
    drawn = curves.draw([(str(each), [1.0, 2.0]) for each in LIGHT], [], Kind.NUMBER)
    text = render_to_string("relay_dashboard/curves.html", {"curves": drawn, "label": "x"})
    dashes = re.findall(r'class="c-curves-line [^>]* stroke-dasharray="([\d ]+)"', text)
    assert len(dashes) == len(set(dashes)) == len(LIGHT) - 1
