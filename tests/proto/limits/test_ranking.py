"""Tests of ranking."""

from __future__ import annotations

from random import Random

import pytest

from proto.limits import ranking
from proto.limits.ranking import Ranking

NOW = 1_000_000.0


def _as_they_are(names: list[str]) -> None:
    """Do nothing: a shuffle that keeps the order."""


def test_the_most_reliable_first() -> None:
    ranks = Ranking()
    for name, failures in (("a", 3), ("b", 1), ("c", 2)):
        for _ in range(failures):
            ranks.fail(name, NOW)
    assert ranks.order(["a", "b", "c", "new"], NOW, _as_they_are) == ["new", "b", "c", "a"]


def test_ties_are_shuffled_and_nothing_else() -> None:
    ranks = Ranking()
    ranks.fail("bad", NOW)
    shuffle = Random(1).shuffle
    orders = {tuple(ranks.order(["bad", "x", "y"], NOW, shuffle)) for _ in range(50)}
    assert orders == {("x", "y", "bad"), ("y", "x", "bad")}


def test_a_rank_heals() -> None:
    ranks = Ranking(period_s=1800)
    ranks.fail("a", NOW)
    ranks.fail("a", NOW + 600)
    assert ranks.rate_per_hour("a", NOW + 600) == 4
    assert ranks.rate_per_hour("a", NOW + 1799) == 4
    assert ranks.rate_per_hour("a", NOW + 1800) == 2
    assert ranks.rate_per_hour("a", NOW + 2400) == 0
    assert len(ranks) == 0, "a healed name takes no room"


def test_failures_and_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "MAX_FAILURES", 3)
    ranks = Ranking(max_names=2)
    for second in range(5):
        ranks.fail("a", NOW + second)
    assert ranks.rate_per_hour("a", NOW + 5) == 3
    ranks.fail("b", NOW + 6)
    ranks.fail("a", NOW + 7)
    ranks.fail("c", NOW + 8)
    assert len(ranks) == 2
    assert ranks.rate_per_hour("b", NOW + 8) == 0, "its last failure was the oldest"
    assert ranks.rate_per_hour("a", NOW + 8) == 3


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Ranking(period_s=0)
