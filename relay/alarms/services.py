"""Operations on alarms, silences and rules, for operators.

Every change takes effect at once: the transaction of the change steps a changed rule, or the rules
of a silence that ends, with the last readings. Notices to receivers are sent when it is committed.
Receivers are managed in `receivers`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from django.utils import timezone

from relay.access.actor import Actor
from relay.access.errors import Conflict, Invalid, NotFound
from relay.alarms import bounds, checks, delivery, evaluation, notice, rounds
from relay.alarms.machine import Limits, Phase
from relay.alarms.models import (
    Alarm,
    Evaluation,
    Kind,
    RuleOverride,
    Silence,
)
from relay.alarms.rules import BY_KEY, RULES, Override, Rule, limits_of
from relay.alarms.silences import fits, matching
from relay.audit import services as audit


class RuleState(NamedTuple):
    """A rule with the values in force.

    Attributes:
        enabled: whether it is watched.
        changed: whether an operator changed something.
        unknown_since: unix time since which its reading cannot be taken; None while it can.
        error: why it cannot be taken.
    """

    rule: Rule
    limits: Limits
    enabled: bool
    changed: bool
    unknown_since: float | None
    error: str


# --- alarms -----------------------------------------------------------------------------------


def get_alarm(alarm_id: int) -> Alarm:
    """Return an alarm.

    Raises:
        NotFound: it does not exist.
    """
    alarm = Alarm.objects.filter(pk=alarm_id).first()
    if alarm is None:
        raise NotFound(f"there is no alarm {alarm_id}")
    return alarm


def acknowledge(alarm_id: int, *, actor: Actor, note: str = "") -> Alarm:
    """Acknowledge an alarm until it ends, and notify the receivers that were notified of it.

    Raises:
        NotFound, Conflict: it does not exist; it does not fire.
    """
    with audit.change(actor, "alarm.acknowledge", target=alarm_id) as change:
        rounds.held()
        alarm = _locked(alarm_id)
        change.target = _target(alarm)
        if not alarm.active:
            raise Conflict(f"alarm {alarm_id} does not fire: it is {alarm.state}")
        change.before = _acknowledged(alarm)
        alarm.acknowledged_by = actor.name[: bounds.MAX_ACTOR_CHARS]
        alarm.acknowledged_at = timezone.now()
        alarm.note = _text("note", note, bounds.MAX_NOTE_CHARS)
        _restate(alarm)
        change.after = _acknowledged(alarm)
        now = timezone.now().timestamp()
        rounds.note(alarm, Kind.ACKNOWLEDGED, actor.name, now)
        if _is_heard_of(alarm):
            rounds.tell_acknowledged(alarm, _limits(alarm), now, rounds.hearers())
        delivery.begin(actor)
    return alarm


def unacknowledge(alarm_id: int, *, actor: Actor) -> Alarm:
    """Withdraw an acknowledgement.

    Raises:
        NotFound, Conflict: the alarm does not exist; it is not acknowledged.
    """
    with audit.change(actor, "alarm.unacknowledge", target=alarm_id) as change:
        rounds.held()
        alarm = _locked(alarm_id)
        change.target = _target(alarm)
        if alarm.acknowledged_at is None:
            raise Conflict(f"alarm {alarm_id} is not acknowledged")
        change.before = _acknowledged(alarm)
        alarm.acknowledged_by = alarm.note = ""
        alarm.acknowledged_at = None
        _restate(alarm)
        now = timezone.now().timestamp()
        rounds.note(alarm, Kind.UNACKNOWLEDGED, actor.name, now)
        if _is_heard_of(alarm):
            limits, by = _limits(alarm), actor.name
            rounds.tell(notice.UNACKNOWLEDGED, alarm, limits, now, rounds.hearers(), by)
        delivery.begin(actor)
    return alarm


# --- silences ---------------------------------------------------------------------------------


def silence(
    rule: str, subject: str = "*", *, until: datetime, actor: Actor, note: str = ""
) -> Silence:
    """Send receivers no notices of matching alarms until a time.

    Args:
        rule: key of a rule, or a pattern with `*` and `?`.
        subject: subject of alarms, or such a pattern.
        until: time at which the silence ends by itself.
        actor: actor that adds it.
        note: reason.

    Raises:
        Invalid: the time is over or too far ahead, or no rule matches.
        Conflict: there are too many silences.
    """
    now = timezone.now()
    checks.check_silence(rule, subject, until, now)
    with audit.change(actor, "silence.add") as change:
        rounds.held()
        if Silence.objects.count() >= bounds.MAX_SILENCES:
            raise Conflict(f"there are {bounds.MAX_SILENCES} silences: end some")
        made = Silence.objects.create(
            rule=rule,
            subject=subject,
            until=until,
            note=_text("note", note, bounds.MAX_NOTE_CHARS),
            by=actor.name[: bounds.MAX_ACTOR_CHARS],
        )
        change.target = str(made.pk)
        change.after = _silence(made)
        _resilence(made, Kind.SILENCED, actor)
    return made


def end_silence(silence_id: int, *, actor: Actor) -> None:
    """End a silence before its time, and notify receivers of alarms that fire.

    Raises:
        NotFound: it does not exist.
    """
    with audit.change(actor, "silence.end", target=silence_id) as change:
        row = rounds.held()
        found = Silence.objects.select_for_update().filter(pk=silence_id).first()
        if found is None:
            raise NotFound(f"there is no silence {silence_id}")
        change.before = _silence(found)
        found.delete()
        _resilence(found, Kind.UNSILENCED, actor)
        evaluation.reconsider(row, [rule for rule in RULES if fits(found.rule, rule.key)])
        delivery.begin(actor)


# --- rules ------------------------------------------------------------------------------------


def list_rules() -> list[RuleState]:
    """Return all rules with the values in force."""
    overrides = rounds.overrides()
    unknown: dict[str, Any] = {}
    for each in (_evaluation_unknown() or {}).values():
        unknown.update(dict.fromkeys(each["rules"], each))
    return [_rule_state(rule, overrides.get(rule.key), unknown.get(rule.key)) for rule in RULES]


def get_rule(key: str) -> RuleState:
    """Return a rule.

    Raises:
        NotFound: no rule has this key.
    """
    for state in list_rules():
        if state.rule.key == key:
            return state
    raise NotFound(f"there is no rule {key[:80]!r}")


def override_of(key: str) -> Override:
    """Return what an operator changed about a rule."""
    return rounds.overrides().get(key, Override())


def set_rule(
    key: str,
    *,
    actor: Actor,
    threshold: float | None = None,
    clear: float | None = None,
    hold_s: float | None = None,
    enabled: bool = True,
) -> RuleState:
    """Replace all settings of a rule; None is the default.

    Raises:
        NotFound, Invalid: the rule does not exist; a number is out of bounds.
    """
    rule = get_rule(key).rule
    override = Override(threshold, clear, hold_s, enabled)
    checks.check_rule(rule, override)
    with audit.change(actor, "rule.set", target=key) as change:
        row = rounds.held()
        changed = RuleOverride.objects.select_for_update().filter(pk=key).first()
        change.before = _override(changed)
        if override == Override():
            change.happened = bool(RuleOverride.objects.filter(pk=key).delete()[0])
        else:
            changed = changed or RuleOverride(rule=key)
            changed.threshold, changed.clear, changed.hold_s, changed.enabled = override
            changed.save()
            change.after = _override(changed)
        evaluation.reconsider(row, [rule])
        delivery.begin(actor)
    return get_rule(key)


# --- internals --------------------------------------------------------------------------------


def _locked(alarm_id: int) -> Alarm:
    alarm = Alarm.objects.select_for_update().filter(pk=alarm_id).first()
    if alarm is None:
        raise NotFound(f"there is no alarm {alarm_id}")
    return alarm


def _is_heard_of(alarm: Alarm) -> bool:
    """Check whether receivers were notified that the alarm fires and may get further notices."""
    return alarm.told and alarm.silenced_until is None and alarm.definition is not None


def _limits(alarm: Alarm) -> Limits:
    return limits_of(BY_KEY[alarm.rule], override_of(alarm.rule))


def _restate(alarm: Alarm) -> None:
    state = rounds.state_of(alarm)
    if state != alarm.state:
        alarm.state, alarm.since = state, timezone.now()
    alarm.save()


def _resilence(changed: Silence, kind: Kind, actor: Actor) -> None:
    """Update firing alarms that match a new or ended silence, and record it in their history."""
    now = timezone.now()
    silences = list(Silence.objects.filter(until__gt=now))
    active = Alarm.objects.select_for_update().filter(phase__in=(Phase.FIRING, Phase.CLEARING))
    for alarm in active:
        if fits(changed.rule, alarm.rule) and fits(changed.subject, alarm.subject):
            found = matching(silences, alarm.rule, alarm.subject)
            alarm.silenced_until = found.until if found else None
            _restate(alarm)
            rounds.note(alarm, kind, actor.name, now.timestamp())


def _rule_state(rule: Rule, override: Override | None, unknown: Any) -> RuleState:
    return RuleState(
        rule,
        limits_of(rule, override),
        override is None or override.enabled,
        override is not None,
        unknown["since"] if unknown else None,
        unknown["error"] if unknown else "",
    )


def _evaluation_unknown() -> dict[str, Any] | None:
    return Evaluation.objects.filter(pk=Evaluation.ONLY).values_list("unknown", flat=True).first()


def _target(alarm: Alarm) -> str:
    return f"{alarm.rule} {alarm.subject}".strip()


def _acknowledged(alarm: Alarm) -> dict[str, Any] | None:
    if alarm.acknowledged_at is None:
        return None
    return {"by": alarm.acknowledged_by, "at": alarm.acknowledged_at, "note": alarm.note}


def _silence(found: Silence) -> dict[str, Any]:
    return {
        "rule": found.rule,
        "subject": found.subject,
        "until": found.until,
        "note": found.note,
    }


def _override(row: RuleOverride | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "threshold": row.threshold,
        "clear": row.clear,
        "hold_s": row.hold_s,
        "enabled": row.enabled,
    }


def _text(field: str, value: str, most: int) -> str:
    if len(value) > most or "\x00" in value:
        raise Invalid(fields={field: f"must have at most {most} characters"})
    return value
