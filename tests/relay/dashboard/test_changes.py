"""Comparisons with earlier figures: words and signs, and colours only if a direction is better."""

from __future__ import annotations

import pytest

from relay.dashboard.changes import HOUR_AGO, Better, change
from relay.dashboard.figures import Kind
from relay.dashboard.states import Tone

SAMPLES = [
    (100, 112, "↑", "12 % more"),
    (100, 88, "↓", "12 % less"),
    (100, 104, "=", "about the same"),
    (0, 0, "=", "about the same"),
    (0, 7, "↑", "was 0/s"),
    (2, 9, "↑", "4.5 times"),
    (0.001, 9, "↑", "> 1000 times"),
    (9, 0, "↓", "100 % less"),
    (None, 7, "", "not known then"),
    (7, None, "", "not known"),
]


@pytest.mark.parametrize(("then", "now", "sign", "text"), SAMPLES)
def test_words(then: float | None, now: float | None, sign: str, text: str) -> None:
    found = change(HOUR_AGO, then, now, Kind.RATE, Better.NEITHER)
    assert (found.sign, found.text, found.tone) == (sign, text, Tone.IDLE)


@pytest.mark.parametrize(
    ("then", "now", "better", "tone"),
    [
        (100, 150, Better.DOWN, Tone.WARNING),
        (150, 100, Better.DOWN, Tone.GOOD),
        (150, 100, Better.UP, Tone.WARNING),
        (100, 112, Better.DOWN, Tone.IDLE),  # small changes are normal
    ],
)
def test_colours(then: float, now: float, better: Better, tone: Tone) -> None:
    assert change(HOUR_AGO, then, now, Kind.NUMBER, better).tone is tone


def test_parts_of_a_whole_are_compared_in_points() -> None:
    found = change(HOUR_AGO, 0.999, 0.979, Kind.SHARE, Better.UP)
    assert (found.text, found.tone, found.then) == ("2 points less", Tone.WARNING, "99.9 %")
    assert change(HOUR_AGO, 0.999, 0.9985, Kind.SHARE, Better.UP).sign == "="
