"""Readings of partner relays and the chain."""

from __future__ import annotations

from typing import Final

from relay.alarms.bounds import MAX_SUBJECTS
from relay.alarms.readings.look import Look, Reading, Readings
from relay.federation import live
from relay.federation.models import RelayNode
from relay.ops.redis_client import number, text
from relay.ops.wording import duration
from relay.queues import keys
from relay.twins import chain_state

MAX_PARTNERS: Final = 1000
RECENT_S: Final = 900.0
"""Seconds after a failure for which a relay counts as down even if no messages wait for it."""
BLOCK_S: Final = 6.0
"""Seconds from one block of the chain to the next."""
NEVER_S: Final = 86_400.0
"""Reading in seconds for a chain that has not been followed yet."""


def outbox(look: Look) -> Readings:
    """Read the age of the oldest message for a partner relay."""
    with look.redis.pipeline(transaction=False) as pipe:
        live.queue_heads(pipe, live.HEADS)
        (heads,) = pipe.execute()
    shards = live.read_heads(heads)
    oldest: dict[str, float] = {}
    for shard in shards:
        for account, at in shard.accounts.items():
            oldest[account] = min(at, oldest.get(account, at))
    ages = sorted(((max(0.0, look.now - at), account) for account, at in oldest.items()))[::-1]
    waiting = sum(shard.length for shard in shards)
    named = ", ".join(f"{account} {duration(age_s)}" for age_s, account in ages[:5])
    detail = f"{waiting} messages wait; oldest: {named}" if ages else "nothing waits"
    return {"outbox_age": {"": Reading(round(ages[0][0] if ages else 0.0, 1), detail)}}


def partners(look: Look) -> Readings:
    """Read the failures of partner relays that do not answer, except those paused or blocked."""
    members = sorted(text(member) for member in look.redis.smembers(keys.PARTNERS))[:MAX_PARTNERS]
    with look.redis.pipeline(transaction=False) as pipe:
        for domain in members:
            pipe.hget(keys.partner(domain), "failures")
        failures = pipe.execute() if members else []
    counts = {
        domain: number(count)
        for domain, count in zip(members, failures, strict=True)
        if number(count) > 0
    }
    failing = sorted(counts, key=lambda domain: counts[domain], reverse=True)[: 2 * MAX_SUBJECTS]
    left_alone = {
        node.domain
        for node in RelayNode.objects.filter(domain__in=failing)
        if node.paused or node.blocked
    }
    asked = [domain for domain in failing if domain not in left_alone]
    period_s = look.config.federation.ranker_period_s
    found = live.read_partners(look.redis, asked, period_s, look.now)
    return {
        "partner_down": {
            domain: Reading(float(state.in_a_row), _failed(state, look.now))
            for domain, state in found.items()
            if state.held.messages or look.now - state.last_failure < RECENT_S
        }
    }


def chain(look: Look) -> Readings:
    """Read how far the follower is behind the chain; nothing if twins come from the registry."""
    if look.config.twins.source != "tfchain":
        return {}
    following = chain_state.read(look.redis).following
    silent_s = look.now - following.head_at if following.head_at else NEVER_S
    if silent_s < chain_state.SILENT_S and following.leased:
        silent_s = 0.0  # between two blocks
    behind_s = max(BLOCK_S * following.lag_blocks, silent_s)
    detail = following.complaint(look.now) or f"{following.lag_blocks} blocks behind"
    return {"chain_lag": {"": Reading(round(behind_s, 1), detail)}}


def _failed(state: live.PartnerState, now: float) -> str:
    last = f"{duration(max(0.0, now - state.last_success))} ago" if state.last_success else "never"
    return (
        f"{state.last_error or 'no answer'}; last success {last}; {state.held.messages} messages "
        "wait"
    )
