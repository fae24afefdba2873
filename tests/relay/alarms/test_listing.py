"""`relay.alarms.listing`: figures of alarms in a readable form."""

from __future__ import annotations

import pytest

from relay.alarms.listing import ends, fires, number, reading
from relay.alarms.rules import BY_KEY, Override, limits_of


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (-0.0, "0"), (0.944444, "0.9444"), (27.6, "27.6"), (2040.59, "2,041"),
     (1e6, "1,000,000"), (-3, "-3")],
)  # fmt: skip
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_when_a_rule_fires_and_ends() -> None:
    disk, away, certificate = BY_KEY["disk"], BY_KEY["redis_away"], BY_KEY["certificate_expiry"]
    limits = limits_of(disk, Override(threshold=70, hold_s=0))
    assert fires(disk, limits) == "at least 70 %"
    assert ends(disk, disk.limits) == "at most 85 %, for 60 s"
    assert fires(away, away.limits) == "when true, for 10 s"
    assert ends(away, away.limits) == "when false, for 10 s"
    assert fires(certificate, certificate.limits) == "at most 21 days"
    assert ends(certificate, certificate.limits) == "at least 22 days"


def test_readings() -> None:
    assert reading(BY_KEY["disk"], 93.25) == "93.25 %"
    assert reading(BY_KEY["redis_away"], 1) == "yes"
    assert reading(BY_KEY["redis_away"], 0) == "no"
    assert reading(BY_KEY["disk"], None) == reading(None, None) == "unknown"
