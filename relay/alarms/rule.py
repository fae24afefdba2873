"""Type of alarm rules: their texts and numbers, and what operators may change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from relay.alarms.machine import Limits


class Severity(StrEnum):
    """Severity: `info` needs no action, `warning` can wait for the morning, `critical` cannot."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Number for comparisons: the more severe, the higher."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        key: name in URLs, commands and events.
        title: the problem, in a few words.
        unit: unit of the readings; empty for readings that are 0 or 1.
        threshold, clear, hold_s, clear_hold_s, rising: see `machine.Limits`.
        subject: kind of subject that its alarms have; empty if there is only one.
        starts: whether it watches something that starts with the relay: its alarms fire no earlier
            than `keys.STARTING_S` after a start.
        meaning: what the alarm means for the relay.
        runbook: steps to take.
    """

    key: str
    title: str
    severity: Severity
    unit: str
    threshold: float
    clear: float
    hold_s: float
    clear_hold_s: float
    meaning: str
    runbook: tuple[str, ...]
    subject: str = ""
    rising: bool = True
    starts: bool = False

    @property
    def limits(self) -> Limits:
        """Default limits."""
        return Limits(self.threshold, self.clear, self.hold_s, self.clear_hold_s, self.rising)

    @property
    def runbook_text(self) -> str:
        """Meaning and steps, as sent with an alarm."""
        steps = [f"{number}. {step}" for number, step in enumerate(self.runbook, 1)]
        return "\n".join((self.meaning, *steps))


class Override(NamedTuple):
    """Changes of an operator to a rule; None is the default."""

    threshold: float | None = None
    clear: float | None = None
    hold_s: float | None = None
    enabled: bool = True


def limits_of(rule: Rule, override: Override | None) -> Limits:
    """Return the limits of a rule, with the operator's numbers in place of the defaults.

    If only the threshold is changed, the clear threshold changes in proportion.
    """
    if override is None:
        return rule.limits
    threshold = rule.threshold if override.threshold is None else override.threshold
    clear = override.clear
    if clear is None:
        clear = rule.clear * threshold / rule.threshold
    hold_s = rule.hold_s if override.hold_s is None else override.hold_s
    return Limits(threshold, clear, hold_s, rule.clear_hold_s, rule.rising)


INFO: Final = Severity.INFO
WARNING: Final = Severity.WARNING
CRITICAL: Final = Severity.CRITICAL
