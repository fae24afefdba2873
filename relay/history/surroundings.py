"""Contents of dashboard frames besides the values: alarms, and the states of partner relays."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from django.db.models import Q

from relay.alarms.models import Alarm, State
from relay.alarms.rules import Severity
from relay.federation import listing, traffic
from relay.federation.listing import Health
from relay.federation.live import PartnerState
from relay.federation.models import RelayNode
from relay.history.frames import Surroundings
from relay.ops import load
from relay.ops.redis_client import client

MAX_PARTNERS: Final = 20
PARTNERS_S: Final = 5.0
SHARE: Final = 200
"""Minimum pause between two look-ups of partner relays, as a multiple of the time that a look-up
takes: a thousand partner relays take 70 ms."""

STATES: Final = ("backed_off", "failing", "stopped", "ok", "unknown")
"""States of a partner relay, in the order shown; `stopped`: paused or blocked by an operator."""
_WORDS: Final = {
    Health.BACKED_OFF: "backed_off",
    Health.FAILING: "failing",
    Health.WORKING: "ok",
    Health.UNKNOWN: "unknown",
}


class Watch:
    """Looks up alarms at each call, and partner relays less often."""

    def __init__(self) -> None:
        self._partners_at = float("-inf")
        self._partners: Sequence[tuple[str, str]] = ()

    def look(self) -> Surroundings:
        """Return the current alarms and partner relays.

        Raises:
            redis.exceptions.RedisError, django.db.Error: a store does not answer.
        """
        firing, worst = _alarms()
        now = time.monotonic()
        if now >= self._partners_at:
            found = load.look_at_partners(client())
            traffic.meter.note(found)
            self._partners = strip(found, stopped(), time.time())
            self._partners_at = now + max(PARTNERS_S, SHARE * (time.monotonic() - now))
        return Surroundings(firing, worst, self._partners)


def stopped() -> set[str]:
    """Return the domains of the relays that an operator has paused or blocked.

    Raises:
        django.db.Error: the database does not answer.
    """
    nodes = RelayNode.objects.filter(Q(paused=True) | Q(blocked=True))
    return set(nodes.values_list("domain", flat=True))


def strip(
    partners: Iterable[PartnerState], stopped: Collection[str], now: float
) -> list[tuple[str, str]]:
    """Return domain and state of up to `MAX_PARTNERS` relays: the worst first, then the busiest."""
    ranked = sorted(
        (STATES.index(state_of(each, now, stopped)), -each.sent - each.received, each.domain)
        for each in partners
    )
    return [(domain, STATES[state]) for state, _, domain in ranked[:MAX_PARTNERS]]


def state_of(partner: PartnerState, now: float, stopped: Collection[str]) -> str:
    """Return the state of a partner relay: one of `STATES`.

    Args:
        stopped: domains of relays that an operator has stopped.
    """
    return "stopped" if partner.domain in stopped else _WORDS[listing.health_of(partner, now)]


def _alarms() -> tuple[int, str]:
    firing = Alarm.objects.filter(state=State.FIRING).exclude(severity=Severity.INFO).order_by()
    severities = [Severity(each) for each in firing.values_list("severity", flat=True)]
    worst = max(severities, key=lambda each: each.rank, default=None)
    return len(severities), str(worst or "")
