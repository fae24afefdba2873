"""Sparklines beside figures: gaps in the data stay gaps."""

from __future__ import annotations

from relay.dashboard.sparks import runs, spark


def test_runs() -> None:
    assert list(runs([None, 1, 2, None, None, 3])) == [(1, [1, 2]), (5, [3])]
    assert list(runs([])) == list(runs([None])) == []


def test_pieces_are_drawn_apart() -> None:
    drawn = spark([1, 2, None, 3])
    assert 'class="c-spark-line" d="M0 20.67L40 11.33M120 2L120 2"' in drawn
    assert 'class="c-spark-line" d=""' in spark([None, None])


def test_nothing_leaves_the_drawing() -> None:
    assert 'class="c-spark-line" d="M0 30L60 30L120 2"' in spark([-5, 0, 4])
