"""What needs somebody: the alarms that fire, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from django.db.models import Count
from django.http import HttpRequest

from relay.alarms import figures
from relay.alarms.models import Alarm, State
from relay.alarms.rules import Severity
from relay.dashboard import states
from relay.dashboard.pages import may
from relay.dashboard.states import Tone

MAX_SHOWN: Final = 8

TONES: Final = {Severity.WARNING: Tone.WARNING, Severity.CRITICAL: Tone.BAD}


class Firing(NamedTuple):
    """One alarm that nobody looks after yet."""

    alarm: Alarm
    severity: states.State
    fired_at: datetime


class Attention(NamedTuple):
    """What needs somebody.

    Attributes:
        shown: the worst, the oldest of them first.
        more: how many there are beside them.
        held: fire too, but somebody acknowledged or silenced them.
        complaint: what is wrong with the alarms themselves; empty when nothing is.
        acknowledges: whether who looks may acknowledge them.
    """

    shown: Sequence[Firing]
    more: int
    held: int
    complaint: str
    acknowledges: bool


def look(request: HttpRequest) -> Attention:
    """What there is for whoever asks; nothing for who may not see alarms."""
    if not may(request, "alarm.view"):
        return Attention((), 0, 0, "", False)
    counts = dict(Alarm.objects.order_by().values_list("state").annotate(Count("pk")))
    found = Alarm.objects.filter(state=State.FIRING).order_by("fired_at", "pk")
    # In two steps: a hundred warnings do not hide the one that cannot wait.
    shown = list(found.filter(severity=Severity.CRITICAL)[:MAX_SHOWN])
    shown += found.exclude(severity=Severity.CRITICAL)[: MAX_SHOWN - len(shown)]
    return Attention(
        [_firing(each) for each in shown],
        counts.get(State.FIRING, 0) - len(shown),
        counts.get(State.ACKNOWLEDGED, 0) + counts.get(State.SILENCED, 0),
        figures.complaint(),
        may(request, "alarm.acknowledge"),
    )


def _firing(alarm: Alarm) -> Firing:
    severity = states.State(alarm.severity, TONES[Severity(alarm.severity)])
    return Firing(alarm, severity, alarm.fired_at or alarm.since)
