"""What operators see of alarms first, and how a reading and its bounds are said."""

from __future__ import annotations

from typing import Final

from relay.alarms import rounds
from relay.alarms.machine import Limits
from relay.alarms.models import Alarm, State
from relay.alarms.rules import BY_KEY, Override, Rule, Severity, limits_of

_ORDER: Final = (State.FIRING, State.ACKNOWLEDGED, State.SILENCED)


def firing() -> list[tuple[Alarm, Limits | None]]:
    """Alarms that fire, with the bounds in force: what nobody looks after first, the worse first.

    Bounds are None for an alarm of a rule that this release does not have.
    """
    overrides = rounds.overrides()
    alarms = sorted(Alarm.objects.filter(state__in=_ORDER), key=_place)
    return [(alarm, limits_in_force(alarm.rule, overrides)) for alarm in alarms]


def pending() -> list[Alarm]:
    """Alarms whose reading is beyond the threshold, but not for long enough."""
    return list(Alarm.objects.filter(state=State.PENDING).order_by("rule", "subject"))


def limits_in_force(rule: str, overrides: dict[str, Override] | None = None) -> Limits | None:
    """The numbers of a rule, with what operators changed."""
    known = BY_KEY.get(rule)
    changed = rounds.overrides() if overrides is None else overrides
    return limits_of(known, changed.get(rule)) if known else None


def number(value: float) -> str:
    """A reading or a bound, with no more digits than anybody compares."""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.4g}"
    return "0" if text == "-0" else text


def reading(rule: Rule | None, value: float | None) -> str:
    """A reading in words."""
    if value is None:
        return "unknown"
    if rule is None or not rule.unit:
        return "yes" if value else "no"
    return f"{number(value)} {rule.unit}"


def fires(rule: Rule, limits: Limits) -> str:
    """When a rule fires."""
    held = f", for {limits.hold_s:g} s" if limits.hold_s else ""
    if not rule.unit:
        return f"when true{held}"
    return f"at {'least' if limits.rising else 'most'} {number(limits.threshold)} {rule.unit}{held}"


def ends(rule: Rule, limits: Limits) -> str:
    """When it ends."""
    held = f", for {limits.clear_hold_s:g} s" if limits.clear_hold_s else ""
    if not rule.unit:
        return f"when false{held}"
    return f"at {'most' if limits.rising else 'least'} {number(limits.clear)} {rule.unit}{held}"


def _place(alarm: Alarm) -> tuple[int, int, float]:
    worst = -Severity(alarm.severity).rank
    return _ORDER.index(State(alarm.state)), worst, -alarm.since.timestamp()
