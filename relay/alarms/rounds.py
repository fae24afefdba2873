"""One step of all alarms, with what operators have set: thresholds, silences, acknowledgements.

Every step runs in a transaction that locks the only row of `Evaluation` (`held`). Ids of events in
the history therefore follow the order of commits, and a reader that continues after the last id it
has seen misses no event.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from django.conf import settings
from django.utils import timezone

from relay.alarms import bounds, delivery, notice
from relay.alarms.machine import Change, Limits, Phase, end, step
from relay.alarms.models import (
    Alarm,
    AlarmEvent,
    Evaluation,
    Kind,
    Receiver,
    RuleOverride,
    Silence,
    State,
)
from relay.alarms.readings.look import Reading, Readings
from relay.alarms.rules import BY_KEY, RULES, Override, Rule, Severity, limits_of
from relay.alarms.silences import matching

logger = logging.getLogger(__name__)

LEVELS: Final = {
    Severity.INFO: logging.INFO,
    Severity.WARNING: logging.WARNING,
    Severity.CRITICAL: logging.ERROR,
}


def held() -> Evaluation:
    """Lock the only row until the transaction ends and return it; lock it before rows of alarms."""
    Evaluation.objects.get_or_create(pk=Evaluation.ONLY)
    return Evaluation.objects.select_for_update().get(pk=Evaluation.ONLY)


def overrides() -> dict[str, Override]:
    """Return what operators changed, by rule."""
    return {
        row.rule: Override(row.threshold, row.clear, row.hold_s, row.enabled)
        for row in RuleOverride.objects.all()
    }


def while_starting(readings: Readings) -> Readings:
    """Return readings of a relay that just started: bad ones of rules with `starts` are unknown."""
    changed = overrides()
    return {
        **readings,
        **{
            rule.key: {
                subject: _unjudged(limits_of(rule, changed.get(rule.key)), reading)
                for subject, reading in readings[rule.key].items()
            }
            for rule in RULES
            if rule.starts and rule.key in readings
        },
    }


class Round:
    """One step of all alarms, inside the transaction."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._overrides = overrides()
        self._receivers = hearers()
        self._silences = list(Silence.objects.filter(until__gt=unix(now)))
        self._alarms: dict[tuple[str, str], Alarm] = {
            (alarm.rule, alarm.subject): alarm
            for alarm in Alarm.objects.select_for_update().exclude(phase=Phase.QUIET)
        }

    def run(self, readings: Readings) -> None:
        """Step every subject that has a reading or an alarm."""
        for rule in RULES:
            self.run_rule(rule, readings.get(rule.key))
        self._retire()

    def run_rule(self, rule: Rule, found: Mapping[str, Reading] | None) -> None:
        """Step the subjects of one rule; if its readings are None, all its subjects are unknown."""
        override = self._overrides.get(rule.key)
        limits = limits_of(rule, override)
        of_rule = {
            subject: alarm for (key, subject), alarm in self._alarms.items() if key == rule.key
        }
        if override is not None and not override.enabled:
            for alarm in of_rule.values():
                self._end(rule, alarm)
            return
        cut = found is not None and _is_cut(limits, found)
        for subject, alarm in of_rule.items():
            reading = Reading(None) if found is None else found.get(subject)
            if reading is None and cut and alarm.active:
                reading = Reading(None)
            self._step(rule, limits, alarm, reading)
        bad = [
            (subject, reading)
            for subject, reading in (found or {}).items()
            if subject not in of_rule and reading.value is not None and limits.bad(reading.value)
        ]
        for subject, reading in bad[: max(0, bounds.MAX_SUBJECTS - len(of_rule))]:
            self._begin(rule, limits, subject, reading)

    def _begin(self, rule: Rule, limits: Limits, subject: str, reading: Reading) -> None:
        alarm = Alarm.objects.filter(rule=rule.key, subject=subject).first() or Alarm(
            rule=rule.key, subject=subject, state=State.RESOLVED, since=unix(self._now)
        )
        self._step(rule, limits, alarm, reading)

    def _step(self, rule: Rule, limits: Limits, alarm: Alarm, reading: Reading | None) -> None:
        """Step one alarm; without a reading, its subject is gone, and counts as good."""
        silence = matching(self._silences, alarm.rule, alarm.subject)
        value = _calm(limits) if reading is None else reading.value
        track, changes = step(limits, alarm.track, value, self._now, silenced=silence is not None)
        alarm.track = track
        alarm.severity = rule.severity
        alarm.value = None if reading is None else reading.value
        if reading is not None and reading.detail:
            alarm.detail = reading.detail[: bounds.MAX_DETAIL_CHARS]
        self._changed(rule, limits, alarm, changes)
        self._show(alarm, silence)
        if track.phase is Phase.QUIET and not track.since:
            if alarm.pk:
                alarm.delete()  # it was pending and never fired
            return
        alarm.save()

    def _end(self, rule: Rule, alarm: Alarm) -> None:
        alarm.track, changes = end(alarm.track, self._now)
        self._changed(rule, rule.limits, alarm, changes, by="the rule was switched off")
        self._show(alarm, None)
        alarm.save()

    def _changed(
        self, rule: Rule, limits: Limits, alarm: Alarm, changes: list[Change], by: str = ""
    ) -> None:
        for change in changes:
            if change is Change.FIRED:
                alarm.fired_at = unix(self._now)
                note(alarm, Kind.FIRED, by, self._now)
                level = LEVELS[rule.severity]
                logger.log(level, "alarm %s: %s", alarm, alarm.detail or f"reading {alarm.value}")
            elif change is Change.RESOLVED:
                alarm.acknowledged_by = alarm.note = ""
                alarm.acknowledged_at = None
                note(alarm, Kind.RESOLVED, by, self._now)
                logger.info("alarm ended: %s", alarm)
            elif change is Change.TELL_FIRED:
                tell(notice.FIRED, alarm, limits, self._now, self._receivers)
                if alarm.acknowledged_at is not None:  # while it was silenced
                    tell_acknowledged(alarm, limits, self._now, self._receivers)
            else:
                tell(notice.RESOLVED, alarm, limits, self._now, self._receivers)

    def _show(self, alarm: Alarm, silence: Silence | None) -> None:
        alarm.silenced_until = silence.until if silence and alarm.track.active else None
        state = state_of(alarm)
        if state != alarm.state or not alarm.pk:
            alarm.state = state
            alarm.since = unix(self._now)

    def _retire(self) -> None:
        """Delete alarms of rules that this release does not have."""
        for (key, _), alarm in self._alarms.items():
            if key not in BY_KEY:
                alarm.delete()


def state_of(alarm: Alarm) -> State:
    """Return the state that follows from an alarm's other fields."""
    phase = alarm.track.phase
    if phase is Phase.PENDING:
        return State.PENDING
    if phase is Phase.QUIET:
        return State.RESOLVED
    if alarm.silenced_until:
        return State.SILENCED
    return State.ACKNOWLEDGED if alarm.acknowledged_at else State.FIRING


def note(alarm: Alarm, kind: Kind, by: str, now: float) -> AlarmEvent:
    """Record an event of an alarm in the history, in a transaction that called `held`."""
    return AlarmEvent.objects.create(
        at=unix(now),
        kind=kind,
        rule=alarm.rule,
        subject=alarm.subject,
        severity=alarm.severity,
        value=alarm.value,
        detail=alarm.detail,
        by=by[: bounds.MAX_ACTOR_CHARS],
    )


def tell(
    kind: str,
    alarm: Alarm,
    limits: Limits,
    now: float,
    receivers: list[Receiver],
    by: str = "",
    words: str = "",
) -> None:
    """Enqueue a notice about an alarm for receivers.

    Args:
        kind: kind of notice, a constant of `notice`.
        alarm: alarm of a rule that this release has.
        limits: limits in force.
        now: unix time.
        receivers: receivers to notify.
        by: actor, if there is one.
        words: the actor's remark.
    """
    told = notice.document(
        kind,
        BY_KEY[alarm.rule],
        at=now,
        domains=settings.RMB.relay.domains,
        subject=alarm.subject,
        value=alarm.value,
        threshold=limits.threshold,
        since=alarm.fired_at.timestamp() if alarm.fired_at else now,
        detail=alarm.detail,
        by=by,
        note=words,
    )
    delivery.enqueue(told, receivers)


def tell_firing(receiver: Receiver, beyond: Severity | None = None) -> None:
    """Notify a receiver of firing alarms that it does not know, in a transaction with `held`.

    Args:
        receiver: new receiver, or one that gets more alarms than before.
        beyond: lowest severity of which it was already notified; None if of no alarm.
    """
    changed, now = overrides(), timezone.now().timestamp()
    active = Alarm.objects.filter(state=State.FIRING, told=True).order_by("fired_at", "pk")
    for alarm in active:
        rule = alarm.definition
        if rule is None or (beyond is not None and rule.severity.rank >= beyond.rank):
            continue
        tell(notice.FIRED, alarm, limits_of(rule, changed.get(rule.key)), now, [receiver])


def tell_acknowledged(alarm: Alarm, limits: Limits, now: float, receivers: list[Receiver]) -> None:
    """Notify receivers that an operator acknowledged an alarm."""
    by, words = alarm.acknowledged_by, alarm.note
    tell(notice.ACKNOWLEDGED, alarm, limits, now, receivers, by, words)


def hearers() -> list[Receiver]:
    """Return enabled receivers, in the order in which they are notified."""
    return list(Receiver.objects.filter(enabled=True).order_by("pk"))


def unix(unix_s: float) -> datetime:
    """Convert unix seconds to a time for the database."""
    return datetime.fromtimestamp(unix_s, UTC)


def _unjudged(limits: Limits, reading: Reading) -> Reading:
    if reading.value is None or not limits.bad(reading.value):
        return reading
    return Reading(None, f"{reading.detail} (the relay has just started)")


def _is_cut(limits: Limits, found: Mapping[str, Reading]) -> bool:
    """Check whether the list of the worst subjects is full, so that others may be bad as well."""
    return len(found) >= bounds.MAX_SUBJECTS and not any(
        each.value is not None and limits.good(each.value) for each in found.values()
    )


def _calm(limits: Limits) -> float:
    """Return a reading that is good for any limits."""
    return float("-inf") if limits.rising else float("inf")
