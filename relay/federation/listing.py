"""Partner relays for pages: the decisions about each, its state, and its current traffic."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from django.conf import settings
from redis.exceptions import RedisError

from proto.federation.domains import fold
from relay.access.errors import Away, NotFound
from relay.federation import counters, live, traffic
from relay.federation.live import PartnerState
from relay.federation.models import RelayNode
from relay.federation.traffic import Traffic
from relay.ops.paging import Page, one_of, page_of
from relay.ops.redis_client import client, number, text
from relay.queues import keys

MAX_LOOKED_AT: Final = 2000
"""Maximum number of relays whose state is read for one list; those with traffic come first, and
each group is taken in the order of names."""


class Health(StrEnum):
    """Health of a relay, the worst first; operators' decisions take precedence over its state."""

    BACKED_OFF = "backed off"
    FAILING = "failing"
    BLOCKED = "blocked"
    PAUSED = "paused"
    UNKNOWN = "not used yet"
    WORKING = "working"


_SEVERITY: Final = tuple(Health)


@dataclass(frozen=True, slots=True)
class Relay:
    """One partner relay.

    Attributes:
        recorded: whether the database has a row for it.
        updated: time of the last decision.
        live: its state in Redis.
        traffic: messages per second over the last minute; None while that is not known.
    """

    domain: str
    trusted: bool
    paused: bool
    blocked: bool
    note: str
    recorded: bool
    updated: datetime | None
    live: PartnerState
    traffic: Traffic | None
    health: Health

    @property
    def flags(self) -> tuple[str, ...]:
        """Names of the decisions that apply."""
        return tuple(name for name in ("trusted", "paused", "blocked") if getattr(self, name))

    @property
    def rate(self) -> float:
        """Messages per second in both directions, as far as it is known."""
        return self.traffic.both if self.traffic else 0.0

    @property
    def messages(self) -> int:
        """Number of messages in both directions since the relay became known."""
        return self.live.sent + self.live.received


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of the drainers for one relay.

    Attributes:
        success: number of messages it accepted.
        errors: number of attempts it did not answer with success.
    """

    success: int
    errors: int


ORDERS: Final[dict[str, Callable[[Relay], float | str]]] = {
    "domain": lambda relay: relay.domain,
    "health": lambda relay: _SEVERITY.index(relay.health),
    "rank": lambda relay: relay.live.rate_per_hour,
    "failures": lambda relay: relay.live.failures,
    "retry": lambda relay: relay.live.retry_at,
    "success": lambda relay: relay.live.last_success,
    "traffic": lambda relay: relay.rate,
    "sent": lambda relay: relay.live.sent,
    "received": lambda relay: relay.live.received,
    "latency": lambda relay: relay.live.latency_ms,
    "held": lambda relay: relay.live.held.messages,
    "oldest": lambda relay: relay.live.oldest_at,
}


def look() -> list[Relay]:
    """Return the relays that exchanged messages and those in the database, at most `MAX_LOOKED_AT`.

    Raises:
        Away: Redis does not answer.
    """
    try:
        known = {fold(text(member)) for member in client().smembers(keys.PARTNERS)}
        rows = {node.domain: node for node in RelayNode.objects.all()}
        names = sorted(known) + sorted(rows.keys() - known)
        states = _states(names[:MAX_LOOKED_AT])
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    traffic.meter.note(states.values())
    return _relays(states, rows)


def page(relays: Sequence[Relay], *, order: str, limit: int, cursor: str = "") -> Page[Relay]:
    """Return a page of relays.

    Raises:
        Invalid: the order or the cursor does not belong to this list.
    """
    value = ORDERS[one_of(order, tuple(ORDERS))[0]]
    return page_of(relays, lambda relay: (value(relay), relay.domain), order, limit, cursor)


def busiest(relays: Sequence[Relay], count: int) -> list[Relay]:
    """Return the relays with the most traffic now, then with the most so far, sorted by name."""
    ranked = sorted(relays, key=lambda relay: (-relay.rate, -relay.messages, relay.domain))
    return sorted(ranked[:count], key=lambda relay: relay.domain)


def get(domain: str) -> Relay:
    """Return one relay.

    Raises:
        NotFound: the relay is not known.
        Away: Redis does not answer.
    """
    domain = fold(domain)
    try:
        rows = {node.domain: node for node in RelayNode.objects.filter(domain=domain)}
        if not rows and not client().sismember(keys.PARTNERS, domain):
            raise NotFound(f"there is no partner relay {domain}")
        states = _states([domain])
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    return _relays(states, rows)[0]


def tally(domain: str) -> Tally:
    """Return the counts for one relay.

    Raises:
        Away: Redis does not answer.
    """
    fields = [counters.field(name, domain) for name in (counters.SUCCESS, counters.ERROR)]
    try:
        success, errors = client().hmget(keys.FEDERATION_COUNTERS, fields)
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error
    return Tally(int(number(success)), int(number(errors)))


def _states(names: Sequence[str]) -> dict[str, PartnerState]:
    return live.read_partners(client(), names, settings.RMB.federation.ranker_period_s)


def _relays(states: Mapping[str, PartnerState], rows: Mapping[str, RelayNode]) -> list[Relay]:
    now = time.time()
    rates = traffic.meter.rates(states.values())
    return [
        _relay(rows.get(name) or RelayNode(domain=name), name in rows, state, now, rates)
        for name, state in states.items()
    ]


def _relay(
    node: RelayNode, recorded: bool, state: PartnerState, now: float, rates: Mapping[str, Traffic]
) -> Relay:
    return Relay(
        domain=node.domain,
        trusted=node.trusted,
        paused=node.paused,
        blocked=node.blocked,
        note=node.note,
        recorded=recorded,
        updated=node.updated,
        live=state,
        traffic=rates.get(node.domain),
        health=_decided(node) or health_of(state, now),
    )


def _decided(node: RelayNode) -> Health | None:
    if node.blocked:
        return Health.BLOCKED
    return Health.PAUSED if node.paused else None


def health_of(state: PartnerState, now: float) -> Health:
    """Return the health of a relay by its state, whatever is decided about it."""
    if state.retry_at > now:
        return Health.BACKED_OFF
    if state.in_a_row:
        return Health.FAILING
    return Health.WORKING if state.last_success or state.heard else Health.UNKNOWN
