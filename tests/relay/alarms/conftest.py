"""Fixtures for alarms: rounds of evaluation without waiting for real time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from relay.alarms import delivery, evaluation
from relay.alarms.bounds import PERIOD_S
from relay.alarms.models import Alarm, Evaluation, Receiver, RuleOverride, State
from relay.alarms.readings.take import take as take_readings

ON_DISK = Path(__file__).parent
"""A folder on a disk that is partly full; temporary files may be in memory."""

Evaluate = Callable[..., None]


class Clock:
    """The machine's clock as the evaluation sees it: each round moves it forward by a period."""

    def __init__(self) -> None:
        self.ahead_s = 0.0


@pytest.fixture
def evaluate(db: None, monkeypatch: pytest.MonkeyPatch) -> Evaluate:
    """Return a function: `evaluate(3)` runs three real evaluations, 5 s apart on their clock.

    Only the clock is not real: the state machine gets its own, so that hold times pass without
    waiting. Readings are those of the present.
    """
    clock = Clock()
    now = evaluation.clock

    def run(rounds: int = 1) -> None:
        for _ in range(rounds):
            clock.ahead_s += PERIOD_S
            Evaluation.objects.update(done=evaluation.clock() - PERIOD_S)
            assert evaluation.evaluate("a test")

    monkeypatch.setattr(evaluation, "clock", lambda: now() + clock.ahead_s)
    # Threads would wait for the transaction of a test; deliveries have separate tests.
    monkeypatch.setattr(delivery, "start_due", lambda: [])
    return run


def states(rule: str = "") -> dict[str, str]:
    """Return the states of unresolved alarms by rule and subject."""
    alarms = Alarm.objects.exclude(state=State.RESOLVED)
    if rule:
        return {each.subject: each.state for each in alarms.filter(rule=rule)}
    return {f"{each.rule} {each.subject}".strip(): each.state for each in alarms}


def override(rule: str, **fields: Any) -> None:
    """Override a rule as an operator does."""
    RuleOverride.objects.update_or_create(rule=rule, defaults=fields)


def configure(settings: Any, section: str, **fields: Any) -> None:
    """Change some settings of the platform for a test."""
    changed = dataclasses.replace(getattr(settings.RMB, section), **fields)
    settings.RMB = dataclasses.replace(settings.RMB, **{section: changed})


def webhook(url: str, **fields: Any) -> Receiver:
    """Store a receiver in the table."""
    values = {"name": "hook", "kind": "webhook", "target": url, "secret": "TEST SECRET", **fields}
    return Receiver.objects.create(**values)


__all__ = ["Evaluate", "configure", "override", "states", "take_readings", "webhook"]
