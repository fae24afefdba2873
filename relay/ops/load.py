"""The current load of the relay: the difference of two snapshots of what workers publish.

Counters only grow while a worker lives, so rates are differences of the same worker (by boot id); a
worker that started in between counts from the next snapshot on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from django.conf import settings
from redis import Redis

from relay.federation import figures, live
from relay.federation.live import PartnerState
from relay.ops.exposition import SERIES
from relay.ops.redis_client import number, text
from relay.ops.workers import WorkerState, list_workers
from relay.queues import keys
from relay.twins import chain_state
from relay.twins.chain_state import ChainState

MAX_PARTNERS: Final = 1000
"""Maximum number of partner relays that are read; the busiest of them are shown."""

_BUCKET: Final = "relay_commit_seconds_bucket"
_DROPPED: Final = "relay_messages_total"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All figures at one moment.

    Attributes:
        at: Seconds of a monotonic clock.
        federation: Figures as `relay.federation.figures.read` returns them.
        chain: State of the chain; None if twins come from the registry.
        waiting: Messages in all queues, as the last sweep found them; None if there was no sweep.
        purged: Messages that operators have deleted so far.
    """

    at: float
    workers: tuple[WorkerState, ...]
    federation: Mapping[str, float]
    partners: tuple[PartnerState, ...]
    chain: ChainState | None
    redis_bytes: int
    waiting: int | None = None
    purged: int = 0


@dataclass(frozen=True, slots=True)
class Rates:
    """What was done per second between two snapshots, by one worker or all.

    Attributes:
        commit_p50_s, commit_p99_s: Upper bounds of the buckets that they fall into; None if there
            was no commit.
        dropped: Messages that ended undelivered, by reason.
    """

    messages_in: float = 0.0
    messages_out: float = 0.0
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    queued: float = 0.0
    federated: float = 0.0
    limit_hits: float = 0.0
    commit_p50_s: float | None = None
    commit_p99_s: float | None = None
    dropped: Mapping[str, float] = field(default_factory=dict)


def look(client: Redis, now: float | None = None, *, partners: bool = True) -> Snapshot:
    """Read a snapshot from Redis.

    Args:
        client: Redis client that returns replies as bytes.
        now: Seconds of a monotonic clock; that of this process if None.
        partners: Whether to read the state of each partner relay too: with a thousand of them this
            is most of the work.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    with client.pipeline(transaction=False) as pipe:
        pipe.info("memory")
        pipe.get(keys.WAITING)
        pipe.get(keys.PURGED)
        memory, waiting, purged = pipe.execute()
    on_chain = settings.RMB.twins.source == "tfchain"
    return Snapshot(
        at=time.monotonic() if now is None else now,
        workers=tuple(list_workers(client)),
        federation=figures.read(client, partners=partners),
        partners=tuple(look_at_partners(client)) if partners else (),
        chain=chain_state.read(client) if on_chain else None,
        redis_bytes=int(memory["used_memory"]),
        waiting=None if waiting is None else int(number(waiting)),
        purged=int(number(purged)),
    )


def look_at_partners(client: Redis) -> list[PartnerState]:
    """Return the state of every partner relay.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    domains = sorted(text(member) for member in client.smembers(keys.PARTNERS))[:MAX_PARTNERS]
    period_s = settings.RMB.federation.ranker_period_s
    return list(live.read_partners(client, domains, period_s).values())


def rates(before: Snapshot, after: Snapshot) -> dict[str, Rates]:
    """Return the rates of each worker between two snapshots, by boot id."""
    elapsed = after.at - before.at
    known = {worker.boot_id: worker.metrics for worker in before.workers}
    return {
        worker.boot_id: _rates([grown(known[worker.boot_id], worker.metrics)], elapsed)
        for worker in after.workers
        if worker.boot_id in known and elapsed > 0
    }


def total(before: Snapshot, after: Snapshot) -> Rates:
    """Return the rates of all workers together."""
    elapsed = after.at - before.at
    known = {worker.boot_id: worker.metrics for worker in before.workers}
    increases = [
        grown(known[worker.boot_id], worker.metrics)
        for worker in after.workers
        if worker.boot_id in known
    ]
    return _rates(increases, elapsed) if elapsed > 0 else Rates()


def grown(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return how much each counter of one process has grown; a new counter began at 0."""
    return {name: max(0.0, value - before.get(name, 0.0)) for name, value in after.items()}


def _rates(increases: Iterable[Mapping[str, float]], elapsed_s: float) -> Rates:
    counts: Counter[str] = Counter()
    for each in increases:
        counts.update(each)
    buckets, dropped = labelled(counts, _BUCKET), labelled(counts, _DROPPED)
    return Rates(
        messages_in=counts["relay_message_rx"] / elapsed_s,
        messages_out=counts["relay_message_tx"] / elapsed_s,
        bytes_in=counts["relay_message_rx_bytes"] / elapsed_s,
        bytes_out=counts["relay_message_tx_bytes"] / elapsed_s,
        queued=counts["relay_messages_queued_total"] / elapsed_s,
        federated=counts["relay_messages_federated_total"] / elapsed_s,
        limit_hits=counts["relay_limit_hits_total"] / elapsed_s,
        commit_p50_s=_quantile(buckets, 0.5),
        commit_p99_s=_quantile(buckets, 0.99),
        dropped={reason: count / elapsed_s for reason, count in dropped.items() if count},
    )


def labelled(counts: Mapping[str, float], name: str) -> dict[str, float]:
    """Return the series of a metric that has one label, by the label's value."""
    found = {}
    begin = f"{name}{{"
    for each, count in counts.items():
        match = SERIES.fullmatch(each) if each.startswith(begin) else None
        if match:
            found[match["labels"].partition("=")[2].strip('",')] = count
    return found


def _quantile(buckets: Mapping[str, float], part: float) -> float | None:
    """Return the bound below which a share of the events lies.

    Args:
        buckets: Cumulative counts by upper bound, including `+Inf`.
        part: Share, from 0 to 1.
    """
    bounds = sorted((float(bound), count) for bound, count in buckets.items())
    if not bounds or not bounds[-1][1]:
        return None
    wanted = part * bounds[-1][1]
    return next(bound for bound, count in bounds if count >= wanted)
