"""Lists of alarms in the order operators need, and readings and bounds in words."""

from __future__ import annotations

from typing import Final

from relay.alarms import rounds
from relay.alarms.machine import Limits
from relay.alarms.models import Alarm, State
from relay.alarms.rules import BY_KEY, Override, Rule, Severity, limits_of

_ORDER: Final = (State.FIRING, State.ACKNOWLEDGED, State.SILENCED)


def firing() -> list[tuple[Alarm, Limits | None]]:
    """Return firing alarms with the bounds in force: unattended alarms first, then by severity.

    Bounds are None for an alarm of a rule that this release does not have.
    """
    overrides = rounds.overrides()
    alarms = sorted(Alarm.objects.filter(state__in=_ORDER), key=_place)
    return [(alarm, limits_in_force(alarm.rule, overrides)) for alarm in alarms]


def pending() -> list[Alarm]:
    """Return alarms whose reading is beyond the threshold, but not for long enough to fire."""
    return list(Alarm.objects.filter(state=State.PENDING).order_by("rule", "subject"))


def limits_in_force(rule: str, overrides: dict[str, Override] | None = None) -> Limits | None:
    """Return the limits of a rule, with what operators changed; None for an unknown rule."""
    known = BY_KEY.get(rule)
    changed = rounds.overrides() if overrides is None else overrides
    return limits_of(known, changed.get(rule)) if known else None


def number(value: float) -> str:
    """Format a reading or a bound, with only as many digits as are useful."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
    return "0" if text == "-0" else text


def reading(rule: Rule | None, value: float | None) -> str:
    """Format a reading with its unit."""
    if value is None:
        return "unknown"
    if rule is None or not rule.unit:
        return "yes" if value else "no"
    return f"{number(value)} {rule.unit}"


def fires(rule: Rule, limits: Limits) -> str:
    """Describe when a rule fires."""
    held = f", for {limits.hold_s:g} s" if limits.hold_s else ""
    if not rule.unit:
        return f"when true{held}"
    return f"at {'least' if limits.rising else 'most'} {number(limits.threshold)} {rule.unit}{held}"


def ends(rule: Rule, limits: Limits) -> str:
    """Describe when an alarm of a rule ends."""
    held = f", for {limits.clear_hold_s:g} s" if limits.clear_hold_s else ""
    if not rule.unit:
        return f"when false{held}"
    return f"at {'most' if limits.rising else 'least'} {number(limits.clear)} {rule.unit}{held}"


def _place(alarm: Alarm) -> tuple[int, int, float]:
    worst = -Severity(alarm.severity).rank
    return _ORDER.index(State(alarm.state)), worst, -alarm.since.timestamp()
