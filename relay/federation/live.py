"""The present state of partner relays in Redis, for pages, metrics and alarms, never decisions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from redis import Redis

from relay.federation import outbox, scripts
from relay.ops.redis_client import number, text
from relay.queues import keys
from relay.queues.held import Held, unpack

HEADS: Final = 200
"""Oldest entries of each shard that are examined for the age of an account's messages."""

_HOUR_S: Final = 3600
_NOTHING: Final = Held(0, 0)


@dataclass(frozen=True, slots=True)
class PartnerState:
    """State of one relay; times are unix seconds, 0 means never.

    Attributes:
        failures: failed attempts within the ranker's period.
        rate_per_hour: its rank; of a twin's relays the one with the lowest is tried first.
        in_a_row: failures since the last success.
        retry_at: time before which nothing is sent to it.
        ours: whether it offered the batch form, as relays of this implementation do.
        heard: time at which a message from it was last accepted.
        held: messages that wait for twins that list only this relay.
        oldest_at: time at which the oldest of these was stored, if it is near the head of the
            outbox.
    """

    domain: str
    failures: int = 0
    rate_per_hour: float = 0.0
    in_a_row: int = 0
    retry_at: float = 0.0
    ours: bool = False
    last_success: float = 0.0
    last_failure: float = 0.0
    last_error: str = ""
    heard: float = 0.0
    sent: int = 0
    received: int = 0
    latency_ms: float = 0.0
    held: Held = _NOTHING
    oldest_at: float = 0.0

    @property
    def kind(self) -> str:
        """The relay's implementation, as far as its answers show it."""
        if self.ours:
            return "ours"
        return "reference" if self.last_success else "unknown"


class ShardHeads(NamedTuple):
    """The head of one shard of the outbox.

    Attributes:
        oldest_at: unix time at which its oldest entry was stored; 0 without entries.
        accounts: the same for each account found.
    """

    length: int
    oldest_at: float
    accounts: Mapping[str, float]


def read_partners(
    client: Redis, domains: Sequence[str], period_s: float, now: float | None = None
) -> dict[str, PartnerState]:
    """Return the state of these relays by domain.

    Args:
        client: connection whose replies are bytes.
        domains: domains of the relays.
        period_s: period of the ranker in seconds (`federation.ranker_period_s`).
        now: unix seconds; the clock unless given.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    if not domains:
        return {}
    moment = time.time() if now is None else now
    with client.pipeline(transaction=False) as pipe:
        for domain in domains:
            pipe.hgetall(keys.partner(domain))
            pipe.zcount(keys.failures(domain), f"({moment - period_s}", "+inf")
            pipe.hget(keys.held(outbox.account_of([domain])), outbox.TOTAL)
        queue_heads(pipe, HEADS)
        *replies, heads = pipe.execute()
    oldest: dict[str, float] = {}
    for shard in read_heads(heads):
        for account, at in shard.accounts.items():
            oldest[account] = min(at, oldest.get(account, at))
    found = {}
    for domain, at in zip(domains, range(0, len(replies), 3), strict=True):
        fields, failures, held = replies[at : at + 3]
        found[domain] = _state(domain, fields, failures, held, period_s, oldest.get(domain, 0.0))
    return found


def queue_heads(pipe: Any, count: int) -> None:
    """Request the head of every shard of the outbox, in a pipeline of either client."""
    names = [keys.outbox(shard) for shard in range(keys.OUTBOX_SHARDS)]
    pipe.eval(scripts.source("heads"), len(names), *names, count)


def read_heads(reply: Iterable[Sequence[Any]]) -> list[ShardHeads]:
    """Return the reply to `queue_heads`, ordered by the number of the shard."""
    found = []
    for length, *entries in reply:
        accounts: dict[str, float] = {}
        for entry_id, account in zip(entries[::2], entries[1::2], strict=True):
            accounts.setdefault(text(account), stored_at(text(entry_id)))
        found.append(ShardHeads(int(length), min(accounts.values(), default=0.0), accounts))
    return found


def stored_at(entry_id: str) -> float:
    """Return the unix time at which a stream entry was added, from its id."""
    return number(entry_id.partition("-")[0]) / 1000


def _state(
    domain: str,
    fields: Mapping[bytes | str, bytes | str],
    failures: int,
    held: bytes | str | None,
    period_s: float,
    oldest_at: float,
) -> PartnerState:
    values = {text(name): text(value) for name, value in fields.items()}
    return PartnerState(
        domain=domain,
        failures=failures,
        rate_per_hour=failures * _HOUR_S / period_s,
        in_a_row=int(number(values.get("failures"))),
        retry_at=number(values.get("retry_at")),
        ours=values.get("kind") == "ours",
        last_success=number(values.get("last_success")),
        last_failure=number(values.get("last_failure")),
        last_error=values.get("last_error", ""),
        heard=number(values.get("heard")),
        sent=int(number(values.get("sent"))),
        received=int(number(values.get("received"))),
        latency_ms=number(values.get("latency_ms")),
        held=unpack(_packed(held)),
        oldest_at=oldest_at,
    )


def _packed(value: bytes | str | None) -> int:
    """Return a packed count as an integer: a float would not hold all of its digits."""
    digits = text(value or "0")
    return int(digits) if digits.isdecimal() else 0
