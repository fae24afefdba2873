"""JSON documents of alarms, rules, silences and receivers, for REST and commands with `--json`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from relay.alarms import receivers
from relay.alarms.models import Alarm, AlarmEvent, Delivery, Receiver, Silence
from relay.alarms.services import RuleState

Document = dict[str, Any]


def alarm(found: Alarm) -> Document:
    """Return the document of an alarm, with its runbook."""
    rule = found.definition
    return {
        "id": found.pk,
        "rule": found.rule,
        "title": found.title,
        "severity": found.severity,
        "subject": found.subject,
        "state": found.state,
        "since": found.since,
        "fired_at": found.fired_at,
        "value": found.value,
        "unit": rule.unit if rule else "",
        "detail": found.detail,
        "acknowledged_by": found.acknowledged_by,
        "acknowledged_at": found.acknowledged_at,
        "note": found.note,
        "silenced_until": found.silenced_until,
        "repeats": found.repeats,
        "runbook": rule.runbook_text if rule else "",
    }


def event(found: AlarmEvent) -> Document:
    """Return the document of an event of the history."""
    return {
        "id": found.pk,
        "at": found.at,
        "kind": found.kind,
        "rule": found.rule,
        "subject": found.subject,
        "severity": found.severity,
        "value": found.value,
        "detail": found.detail,
        "by": found.by,
    }


def silence(found: Silence) -> Document:
    """Return the document of a silence."""
    return {
        "id": found.pk,
        "rule": found.rule,
        "subject": found.subject,
        "until": found.until,
        "note": found.note,
        "by": found.by,
        "created": found.created,
    }


def rule(state: RuleState) -> Document:
    """Return the document of a rule with the values in force."""
    since = state.unknown_since
    return {
        "key": state.rule.key,
        "title": state.rule.title,
        "severity": str(state.rule.severity),
        "unit": state.rule.unit,
        "subject": state.rule.subject,
        "rising": state.rule.rising,
        "threshold": state.limits.threshold,
        "clear": state.limits.clear,
        "hold_s": state.limits.hold_s,
        "clear_hold_s": state.limits.clear_hold_s,
        "enabled": state.enabled,
        "changed": state.changed,
        "unknown_since": None if since is None else datetime.fromtimestamp(since, UTC),
        "error": state.error,
        "runbook": state.rule.runbook_text,
    }


def receiver(found: Receiver, waiting: int) -> Document:
    """Return the document of a receiver, without its secret and what may be secret in its URL."""
    return {
        "id": found.pk,
        "name": found.name,
        "kind": found.kind,
        "target": receivers.shown_target(found),
        "min_severity": found.min_severity,
        "enabled": found.enabled,
        "revision": receivers.revision_of(found),
        "waiting": waiting,
        "last_success": found.last_success,
        "last_error": found.last_error,
    }


def delivery(found: Delivery) -> Document:
    """Return the document of a notice and its outcome."""
    return {
        "id": found.pk,
        "receiver": found.receiver.name,
        "event": found.event_id,
        "type": found.body["type"],
        "rule": found.body["alarm"]["rule"],
        "subject": found.body["alarm"]["subject"],
        "created": found.created,
        "outcome": found.outcome,
        "tries": found.tries,
        "error": found.error,
        "ended": found.ended,
    }
