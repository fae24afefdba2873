"""Validation of silences and of changes to rules. Pure."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final

from relay.access.errors import Invalid
from relay.alarms import bounds
from relay.alarms.rules import RULES, Override, Rule, limits_of
from relay.alarms.silences import fits

MAX_HOLD_S: Final = 86_400.0


def check_silence(rule: str, subject: str, until: datetime, now: datetime) -> None:
    """Check the fields of a silence.

    Raises:
        Invalid: some fields are invalid; the error names them.
    """
    wrong = {}
    if not any(fits(rule, each.key) for each in RULES) or len(rule) > 40:
        wrong["rule"] = "matches no rule; use the name of a rule, or a pattern such as partner_*"
    if not subject or len(subject) > bounds.MAX_SUBJECT_CHARS:
        wrong["subject"] = f"must have 1 to {bounds.MAX_SUBJECT_CHARS} characters"
    if until <= now:
        wrong["until"] = "is over"
    elif until > now + timedelta(days=bounds.MAX_SILENCE_DAYS):
        wrong["until"] = f"must be within {bounds.MAX_SILENCE_DAYS} days"
    if wrong:
        raise Invalid(fields=wrong)


def check_rule(rule: Rule, override: Override) -> None:
    """Check the numbers with which an operator overrides a rule.

    Raises:
        Invalid: some fields are invalid; the error names them.
    """
    wrong = {}
    numbers = {"threshold": override.threshold, "clear": override.clear, "hold_s": override.hold_s}
    for name, number in numbers.items():
        if number is not None and not (math.isfinite(number) and 0 <= number <= 1e12):
            wrong[name] = "must be from 0 to 1e12"
    if not rule.unit and (override.threshold is not None or override.clear is not None):
        wrong["threshold"] = "this rule has none: its reading is yes or no"
    if override.hold_s is not None and override.hold_s > MAX_HOLD_S:
        wrong["hold_s"] = f"must be at most {MAX_HOLD_S:.0f}"
    if override.threshold == 0:
        wrong["threshold"] = "must be above 0"
    if not wrong:
        limits = limits_of(rule, override)
        if (limits.clear > limits.threshold) if rule.rising else (limits.clear < limits.threshold):
            side = "above" if rule.rising else "below"
            wrong["clear"] = f"must not be {side} the threshold, which is {limits.threshold:g}"
    if wrong:
        raise Invalid(fields=wrong)
