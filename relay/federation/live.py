"""How other relays do, as Redis says now: for pages, metrics and alarms, never for decisions."""

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
"""Oldest entries of each shard that are looked at for the age of what waits for one account."""

_HOUR_S: Final = 3600
_NOTHING: Final = Held(0, 0)


@dataclass(frozen=True, slots=True)
class PartnerState:
    """One relay's state; times are unix seconds, 0 is never.

    Attributes:
        failures: in the ranker's period.
        rate_per_hour: its rank; the relay of a twin with the lowest is tried first.
        in_a_row: failures since the last success.
        retry_at: nothing is sent to it before.
        ours: whether it offered the batch form, as relays of this kind do.
        heard: when something it sent was last accepted.
        held: what waits for twins that list this relay alone.
        oldest_at: when the oldest of that was stored, as far as the head of the outbox tells.
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
        """What it is, as far as its answers told."""
        if self.ours:
            return "ours"
        return "reference" if self.last_success else "unknown"


class ShardHeads(NamedTuple):
    """The head of one shard of the outbox.

    Attributes:
        oldest_at: unix time its oldest entry was stored; 0 where there is none.
        accounts: the same for each account that was met.
    """

    length: int
    oldest_at: float
    accounts: Mapping[str, float]


def read_partners(
    client: Redis, domains: Sequence[str], period_s: float, now: float | None = None
) -> dict[str, PartnerState]:
    """The state of these relays.

    Args:
        client: replies as bytes.
        domains: whose.
        period_s: the ranker's (`federation.ranker_period_s`).
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
    """Ask, in a pipeline of either client, for the head of every shard of the outbox."""
    names = [keys.outbox(shard) for shard in range(keys.OUTBOX_SHARDS)]
    pipe.eval(scripts.source("heads"), len(names), *names, count)


def read_heads(reply: Iterable[Sequence[Any]]) -> list[ShardHeads]:
    """What `queue_heads` asked for, by number of the shard."""
    found = []
    for length, *entries in reply:
        accounts: dict[str, float] = {}
        for entry_id, account in zip(entries[::2], entries[1::2], strict=True):
            accounts.setdefault(text(account), stored_at(text(entry_id)))
        found.append(ShardHeads(int(length), min(accounts.values(), default=0.0), accounts))
    return found


def stored_at(entry_id: str) -> float:
    """Unix time a stream entry was added, by its id."""
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
    """A packed count: a float would not hold all of its digits."""
    digits = text(value or "0")
    return int(digits) if digits.isdecimal() else 0
