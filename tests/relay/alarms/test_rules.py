"""The table of rules: valid figures, and runbooks that name existing things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

from relay.alarms.readings.take import READERS
from relay.alarms.rules import BY_KEY, RULES, Override, Rule, limits_of
from relay.alarms.runbook import markdown
from relay.alarms.silences import fits
from rmbsite import config

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.key)
def test_a_rule_is_sound(rule: Rule) -> None:
    limits = rule.limits
    assert limits.bad(rule.threshold) and not limits.good(rule.threshold)
    assert limits.good(rule.clear) and not limits.bad(rule.clear)
    assert rule.hold_s >= 0 and rule.clear_hold_s >= 0
    assert rule.unit or (rule.threshold, rule.clear) == (1, 0)
    assert rule.meaning and 1 <= len(rule.runbook) <= 6
    named = set(re.findall(r"manage\.py (rmb_\w+)", rule.runbook_text))
    assert named <= set(get_commands())
    settings = {option.key for option in config.all_options()}
    for name in re.findall(r"`(\w+\.\w+)`", rule.runbook_text):
        assert name in settings, name


def test_every_rule_has_a_reader_and_no_other() -> None:
    read = [rule for reader in READERS for rule in reader.rules]
    assert len(read) == len(set(read))
    own = {"redis_away", "database_away", "reading_unknown"}
    assert set(read) | own == set(BY_KEY) and not own & set(read)


def test_the_runbook_is_what_the_rules_say() -> None:
    assert (ROOT / "docs/operate/runbook.md").read_text() == markdown(), "run `make docs`"


def test_a_threshold_of_ones_own_keeps_the_distance() -> None:
    limits = limits_of(BY_KEY["disk"], Override(threshold=45))
    assert (limits.threshold, limits.clear) == (45, 42.5)
    limits = limits_of(BY_KEY["certificate_expiry"], Override(threshold=42, hold_s=7))
    assert (limits.threshold, limits.clear, limits.hold_s) == (42, 44, 7)


@pytest.mark.parametrize(
    ("pattern", "text", "fitting"),
    [
        ("*", "", True),
        ("*", "anything", True),
        ("", "", True),
        ("", "a", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("*.example", "a.example", True),
        ("*.example", "a.example.org", False),
        ("[a-c]*", "b", False),
        ("[a-c]*", "[a-c]x", True),
        ("**a**", "bab", True),
        ("a*b*c", "aXbXbXc", True),
        ("a*b*c", "aXbXbX", False),
        ("*a" * 100 + "b", "a" * 300, False),
    ],
)
def test_patterns(pattern: str, text: str, fitting: bool) -> None:
    assert fits(pattern, text) is fitting
