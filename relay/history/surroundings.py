"""What dashboards are told besides the values: alarms, the busiest twins, how other relays are."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from relay.alarms.models import Alarm, State
from relay.alarms.rules import Severity
from relay.federation.live import PartnerState
from relay.history.frames import Surroundings
from relay.ops import load
from relay.ops.redis_client import client

MAX_PARTNERS: Final = 20

STATES: Final = ("backed_off", "failing", "ok", "unknown")
"""How another relay can be, the worst first."""


def look() -> Surroundings:
    """What there is now.

    Raises:
        redis.exceptions.RedisError, django.db.Error: a store does not answer.
    """
    firing, worst = _alarms()
    return Surroundings(
        firing=firing, worst=worst, partners=strip(load.look_at_partners(client()), time.time())
    )


def strip(partners: Iterable[PartnerState], now: float) -> list[tuple[str, str]]:
    """Domain and state of some relays: those in trouble first, then the busiest."""
    ranked = sorted(
        ((STATES.index(state_of(each, now)), -each.sent - each.received, each.domain), each)
        for each in partners
    )
    return [(each.domain, STATES[order[0]]) for order, each in ranked[:MAX_PARTNERS]]


def state_of(partner: PartnerState, now: float) -> str:
    """How another relay is: one of `STATES`."""
    if partner.retry_at > now:
        return "backed_off"
    if partner.in_a_row:
        return "failing"
    return "ok" if partner.last_success or partner.heard else "unknown"


def _alarms() -> tuple[int, str]:
    found = list(Alarm.objects.filter(state=State.FIRING).order_by().values_list("severity"))
    severities = [Severity(severity) for (severity,) in found]
    worst = max(severities, key=lambda each: each.rank, default=None)
    return len(found), str(worst or "")
