"""Alarms that need attention, the worst first."""

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
    """One firing alarm that is neither acknowledged nor silenced."""

    alarm: Alarm
    severity: states.State
    fired_at: datetime


class Attention(NamedTuple):
    """Alarms that need attention.

    Attributes:
        more: number of such alarms that are not shown.
        held: number of firing alarms that are acknowledged or silenced.
        complaint: problem of the alarms themselves; empty if they work.
        acknowledges: whether the account may acknowledge alarms.
    """

    shown: Sequence[Firing]
    more: int
    held: int
    complaint: str
    acknowledges: bool


def look(request: HttpRequest) -> Attention | None:
    """Return the alarms that need attention; None if the account may not view alarms."""
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
