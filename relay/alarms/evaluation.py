"""Looks at the relay and moves every alarm on: `evaluate`, every 5 s, by whoever comes first.

    reserve the one row -> take all readings -> in one transaction: step each alarm, note what
    happened, write what receivers are to be told -> begin to deliver

The Celery schedule does it; the operator site does when nobody has (`standby`). Who evaluates is
settled in the database, so that it works while Redis is away. What an evaluation found counts only
if it still has its reservation when it writes.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from relay.alarms import bounds, delivery, notice
from relay.alarms.machine import Change, Limits, Phase, end, step
from relay.alarms.models import (
    Alarm,
    AlarmEvent,
    Delivery,
    Evaluation,
    Kind,
    Outcome,
    Receiver,
    RuleOverride,
    Silence,
    State,
)
from relay.alarms.readings.look import Reading, Readings
from relay.alarms.readings.take import Taken, Unknown, take
from relay.alarms.rules import BY_KEY, RULES, Override, Rule, Severity, limits_of
from relay.alarms.silences import matching
from relay.ops.redis_client import client

logger = logging.getLogger(__name__)

PRUNE_S: Final = 3600.0
_PRUNED: Final = "pruned"
clock = time.time
"""Unix seconds, for the state machine."""
EARLY_S: Final = bounds.PERIOD_S * 0.8
"""Sooner after the last one nobody evaluates: several hosts have a schedule each."""


def evaluate(by: str) -> bool:
    """One evaluation.

    Args:
        by: who does it, for the operator.

    Returns:
        Whether it was done here: somebody else may be at it, or have just been.

    Raises:
        django.db.Error: the database does not answer.
    """
    token = _reserve(by)
    if not token:
        return False
    began = time.monotonic()
    memory = Evaluation.objects.values_list("memory", flat=True).get(pk=Evaluation.ONLY)
    taken = take(settings.RMB, client(), memory)
    with transaction.atomic():
        row = Evaluation.objects.select_for_update().filter(pk=Evaluation.ONLY, token=token).first()
        if row is None:
            return False
        now = clock()
        row.unknown = _unknown(row.unknown, taken.unknown, now)
        readings = {**taken.readings, "database_away": {"": Reading(0.0)}}
        readings["reading_unknown"] = _unknown_readings(row.unknown, now)
        Round(now).run(readings, taken)
        row.memory = {**taken.memory, _PRUNED: _prune(memory.get(_PRUNED, 0.0), now)}
        row.token, row.until, row.done = "", 0.0, now
        row.took_s = round(time.monotonic() - began, 3)
        row.save()
    delivery.start_due()
    return True


def age_s(now: float | None = None) -> float | None:
    """How long ago the last evaluation ended; None before the first.

    Raises:
        django.db.Error: the database does not answer.
    """
    done = Evaluation.objects.filter(pk=Evaluation.ONLY).values_list("done", flat=True).first()
    return abs((clock() if now is None else now) - done) if done else None


def done_by(who: str) -> bool:
    """Whether the last evaluation was done by one of these, as `evaluate` was told.

    Raises:
        django.db.Error: the database does not answer.
    """
    return Evaluation.objects.filter(pk=Evaluation.ONLY, by__startswith=f"{who} ").exists()


def overrides() -> dict[str, Override]:
    """What operators changed, by rule."""
    return {
        row.rule: Override(row.threshold, row.clear, row.hold_s, row.enabled)
        for row in RuleOverride.objects.all()
    }


class Round:
    """The step of all alarms, inside the transaction."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._overrides = overrides()
        self._receivers = list(Receiver.objects.filter(enabled=True).order_by("pk"))
        self._silences = list(Silence.objects.filter(until__gt=_time(now)))
        self._alarms: dict[tuple[str, str], Alarm] = {
            (alarm.rule, alarm.subject): alarm
            for alarm in Alarm.objects.select_for_update().exclude(phase=Phase.QUIET)
        }

    def run(self, readings: Readings, taken: Taken) -> None:
        """Steps every subject that has a reading or an alarm."""
        for rule in RULES:
            override = self._overrides.get(rule.key)
            limits = limits_of(rule, override)
            of_rule = {
                subject: alarm for (key, subject), alarm in self._alarms.items() if key == rule.key
            }
            if override is not None and not override.enabled:
                for alarm in of_rule.values():
                    self._end(rule, alarm)
                continue
            found = readings.get(rule.key)
            cut = found is not None and _is_cut(limits, found)
            for subject, alarm in of_rule.items():
                reading = Reading(None) if found is None else found.get(subject)
                if reading is None and cut and alarm.active:
                    reading = Reading(None)
                self._step(rule, limits, alarm, reading)
            bad = [
                (subject, reading)
                for subject, reading in (found or {}).items()
                if subject not in of_rule
                and reading.value is not None
                and limits.bad(reading.value)
            ]
            for subject, reading in bad[: max(0, bounds.MAX_SUBJECTS - len(of_rule))]:
                self._begin(rule, limits, subject, reading)
        self._retire()

    def _begin(self, rule: Rule, limits: Limits, subject: str, reading: Reading) -> None:
        alarm = Alarm.objects.filter(rule=rule.key, subject=subject).first() or Alarm(
            rule=rule.key, subject=subject, state=State.RESOLVED, since=_time(self._now)
        )
        self._step(rule, limits, alarm, reading)

    def _step(self, rule: Rule, limits: Limits, alarm: Alarm, reading: Reading | None) -> None:
        """Steps one alarm; without a reading, what it is about is gone, and in order."""
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
                alarm.delete()  # it was about to fire, and never did
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
                alarm.fired_at = _time(self._now)
                note(alarm, Kind.FIRED, by, self._now)
                level = logging.ERROR if rule.severity is Severity.CRITICAL else logging.WARNING
                logger.log(level, "alarm %s: %s", alarm, alarm.detail or f"reading {alarm.value}")
            elif change is Change.RESOLVED:
                alarm.acknowledged_by = alarm.note = ""
                alarm.acknowledged_at = None
                note(alarm, Kind.RESOLVED, by, self._now)
                logger.info("alarm ended: %s", alarm)
            else:
                fired = change is Change.TELL_FIRED
                told = notice.document(
                    notice.FIRED if fired else notice.RESOLVED,
                    rule,
                    at=self._now,
                    domains=settings.RMB.relay.domains,
                    subject=alarm.subject,
                    value=alarm.value,
                    threshold=limits.threshold,
                    since=alarm.fired_at.timestamp() if alarm.fired_at else self._now,
                    detail=alarm.detail,
                )
                delivery.enqueue(told, self._receivers)

    def _show(self, alarm: Alarm, silence: Silence | None) -> None:
        alarm.silenced_until = silence.until if silence and alarm.track.active else None
        state = state_of(alarm)
        if state != alarm.state or not alarm.pk:
            alarm.state = state
            alarm.since = _time(self._now)

    def _retire(self) -> None:
        """Ends what belongs to a rule this release does not have."""
        for (key, _), alarm in self._alarms.items():
            if key not in BY_KEY:
                alarm.delete()


def state_of(alarm: Alarm) -> State:
    """What an alarm's other fields come to."""
    phase = alarm.track.phase
    if phase is Phase.PENDING:
        return State.PENDING
    if phase is Phase.QUIET:
        return State.RESOLVED
    if alarm.silenced_until:
        return State.SILENCED
    return State.ACKNOWLEDGED if alarm.acknowledged_at else State.FIRING


def note(alarm: Alarm, kind: Kind, by: str, now: float) -> AlarmEvent:
    """Writes what happened to an alarm into the history."""
    return AlarmEvent.objects.create(
        at=_time(now),
        kind=kind,
        rule=alarm.rule,
        subject=alarm.subject,
        severity=alarm.severity,
        value=alarm.value,
        detail=alarm.detail,
        by=by[: bounds.MAX_ACTOR_CHARS],
    )


def _is_cut(limits: Limits, found: Mapping[str, Reading]) -> bool:
    """Whether subjects that are not among these, the worst, may be in trouble as well."""
    return len(found) >= bounds.MAX_SUBJECTS and not any(
        each.value is not None and limits.good(each.value) for each in found.values()
    )


def _calm(limits: Limits) -> float:
    """A reading that is good by any means."""
    return float("-inf") if limits.rising else float("inf")


def _reserve(by: str) -> str:
    """A token for one evaluation; empty when it is not our turn."""
    now = clock()
    row, _ = Evaluation.objects.get_or_create(pk=Evaluation.ONLY)
    free = Q(until__lte=now) | Q(until__gt=now + 2 * bounds.EVALUATION_S)  # a clock set back
    its_time = Q(done__lte=now - EARLY_S) | Q(done__gt=now + 1.0)
    token = secrets.token_hex(16)
    found = Evaluation.objects.filter(free & its_time, pk=row.pk).update(
        token=token,
        until=now + bounds.EVALUATION_S,
        by=f"{by} {socket.gethostname()}/{os.getpid()}"[:100],
    )
    return token if found else ""


def _unknown(before: Mapping[str, Any], found: Mapping[str, Unknown], now: float) -> dict[str, Any]:
    """What cannot be read, and since when."""
    return {
        name: {
            "since": before[name]["since"] if name in before else now,
            "error": each.error,
            "rules": list(each.rules),
            "redis_away": each.redis_away,
        }
        for name, each in found.items()
    }


def _unknown_readings(unknown: Mapping[str, Any], now: float) -> dict[str, Reading]:
    return {
        name: Reading(round(max(0.0, now - each["since"]), 1), each["error"])
        for name, each in unknown.items()
        if not each["redis_away"]  # which has an alarm of its own
    }


def _prune(pruned: float, now: float) -> float:
    """Removes old history once an hour."""
    if abs(now - pruned) < PRUNE_S:
        return pruned
    before = _time(now) - timedelta(days=bounds.KEEP_DAYS)
    AlarmEvent.objects.filter(at__lt=before).delete()
    Delivery.objects.filter(created__lt=before).exclude(outcome=Outcome.WAITING).delete()
    Silence.objects.filter(until__lt=_time(now)).delete()
    Alarm.objects.filter(phase=Phase.QUIET, since__lt=before).delete()
    for model in (AlarmEvent, Delivery):
        beyond = model.objects.order_by("-pk").values_list("pk", flat=True)[bounds.KEEP_EVENTS :]
        last = beyond.first()
        if last is not None:
            model.objects.filter(pk__lte=last).delete()
    return now


def _time(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
