"""What needs somebody: the alarms that fire, the worst first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from django.http import HttpRequest

from relay.alarms import figures, listing
from relay.alarms.models import Alarm, State
from relay.alarms.rules import Severity
from relay.dashboard import states
from relay.dashboard.pages import may
from relay.dashboard.views.alarms import SEVERITIES

MAX_SHOWN: Final = 8


class Firing(NamedTuple):
    """One alarm that nobody looks after yet."""

    alarm: Alarm
    severity: states.State
    fired_at: datetime


class Attention(NamedTuple):
    """What needs somebody.

    Attributes:
        more: how many there are beside those that are shown.
        held: fire too, but somebody acknowledged or silenced them.
        complaint: what is wrong with the alarms themselves; empty when nothing is.
        acknowledges: whether who looks may acknowledge them.
    """

    shown: Sequence[Firing]
    more: int
    held: int
    complaint: str
    acknowledges: bool


def look(request: HttpRequest) -> Attention | None:
    """What there is for whoever asks; None for who may not see alarms."""
    if not may(request, "alarm.view"):
        return None
    found = [alarm for alarm, _ in listing.firing() if alarm.severity != Severity.INFO]
    firing = [alarm for alarm in found if alarm.state == State.FIRING]
    shown = [
        Firing(each, SEVERITIES[Severity(each.severity)], each.fired_at or each.since)
        for each in firing[:MAX_SHOWN]
    ]
    return Attention(
        shown,
        len(firing) - len(shown),
        len(found) - len(firing),
        figures.complaint(),
        may(request, "alarm.acknowledge"),
    )
