"""Notices to receivers: one JSON document for webhooks, and the same as text for e-mail. Pure.

    {"id": "…", "type": "alarm.fired", "at": "2026-01-31T12:00:00Z", "relay": ["relay.example"],
     "test": false, "sequence": 17, "by": "", "note": "",
     "alarm": {"rule": "disk", "title": "…", "severity": "critical", "subject": "/data",
               "value": 93.1, "unit": "%", "threshold": 90, "since": "…", "detail": "…",
               "runbook": "…"}}

`id` is the same for each try and each receiver; `sequence` counts the notices for one receiver.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from relay.alarms.rules import Rule
from relay.ops.printable import shown

FIRED: Final = "alarm.fired"
ACKNOWLEDGED: Final = "alarm.acknowledged"
UNACKNOWLEDGED: Final = "alarm.unacknowledged"
RESOLVED: Final = "alarm.resolved"
TEST: Final = "alarm.test"

Document = dict[str, Any]

_WORDS: Final = {
    FIRED: "FIRING",
    ACKNOWLEDGED: "acknowledged",
    UNACKNOWLEDGED: "FIRING, no longer acknowledged",
    RESOLVED: "ended",
    TEST: "TEST",
}
MAX_SUBJECT_LINE: Final = 200


def new_id() -> str:
    """Return a new id of an event."""
    return secrets.token_hex(16)


def document(
    kind: str,
    rule: Rule,
    *,
    at: float,
    domains: Sequence[str],
    subject: str = "",
    value: float | None = None,
    threshold: float | None = None,
    since: float = 0.0,
    detail: str = "",
    by: str = "",
    note: str = "",
) -> Document:
    """Return the document of a notice.

    Args:
        kind: one of the constants above.
        rule: rule of the alarm.
        at: unix time of the event.
        domains: host names of this relay.
        subject, value, detail: those of the alarm.
        threshold: threshold in force; the rule's default if None.
        since: unix time at which it fired.
        by: actor that acknowledged it, or withdrew that.
        note: the actor's remark.
    """
    return {
        "id": new_id(),
        "type": kind,
        "at": iso(at),
        "relay": list(domains),
        "test": kind == TEST,
        "by": by,
        "note": note,
        "alarm": {
            "rule": rule.key,
            "title": rule.title,
            "severity": str(rule.severity),
            "subject": subject,
            "value": value,
            "unit": rule.unit,
            "threshold": rule.threshold if threshold is None else threshold,
            "since": iso(since or at),
            "detail": detail,
            "runbook": rule.runbook_text,
        },
    }


def iso(unix_s: float) -> str:
    """Format a time as ISO 8601, in UTC."""
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")


def subject_line(told: Mapping[str, Any]) -> str:
    """Return the subject of an e-mail, always one line."""
    alarm = told["alarm"]
    about = f" ({alarm['subject']})" if alarm["subject"] else ""
    names = told["relay"][0] if told["relay"] else "relay"
    line = f"[{names}] {_WORDS[told['type']]} {alarm['severity']}: {alarm['title']}{about}"
    return shown(line, MAX_SUBJECT_LINE)


def text(told: Mapping[str, Any]) -> str:
    """Return the body of an e-mail."""
    alarm = told["alarm"]
    lines = ["This is a test: nothing is wrong.", ""] if told["test"] else []
    value = "unknown" if alarm["value"] is None else f"{alarm['value']:g} {alarm['unit']}".strip()
    lines += [
        f"{alarm['title']}: {_WORDS[told['type']]}",
        "",
        *([f"about       {alarm['subject']}"] if alarm["subject"] else []),
        f"severity    {alarm['severity']}",
        f"reading     {value} (threshold {alarm['threshold']:g})",
        *([f"            {alarm['detail']}"] if alarm["detail"] else []),
        f"since       {alarm['since']}",
        f"at          {told['at']}",
        *([f"by          {told['by']}"] if told["by"] else []),
        *([f"note        {told['note']}"] if told["note"] else []),
        f"relay       {', '.join(told['relay'])}",
        f"rule        {alarm['rule']}",
        f"event       {told['id']}",
        "",
        alarm["runbook"],
        "",
    ]
    return "\n".join(lines)
