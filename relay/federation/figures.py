"""The metrics of federation that belong to no single worker, read from Redis at each scrape."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from relay.federation import counters, live
from relay.ops.metric_names import series
from relay.ops.redis_client import number, text
from relay.queues import keys

MAX_RELAYS: Final = 1000
"""Maximum number of relays with series of their own, the busiest; the others share the series
`OTHER`. Twins name relays freely, and every name would be a series for ever."""
OTHER: Final = "other"


def read(client: Redis, now: float | None = None, *, partners: bool = True) -> dict[str, float]:
    """Return the values of all series.

    Args:
        client: connection whose replies are bytes.
        now: unix seconds; the clock unless given.
        partners: whether to read the back-off of each partner relay.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    with client.pipeline(transaction=False) as pipe:
        _ask(pipe)
        counted, members, dead, heads = pipe.execute()
        domains = _domains(members) if partners else []
        _ask_partners(pipe, domains)
        retry_at = pipe.execute() if domains else []
    return _figures(counted, dead, heads, dict(zip(domains, retry_at, strict=True)), now)


async def read_async(client: AsyncRedis, now: float | None = None) -> dict[str, float]:
    """Return the values of all series, as `read`, on an event loop."""
    async with client.pipeline(transaction=False) as pipe:
        _ask(pipe)
        counted, members, dead, heads = await pipe.execute()
        domains = _domains(members)
        _ask_partners(pipe, domains)
        retry_at = await pipe.execute() if domains else []
    return _figures(counted, dead, heads, dict(zip(domains, retry_at, strict=True)), now)


def _ask(pipe: Any) -> None:
    pipe.hgetall(keys.FEDERATION_COUNTERS)
    pipe.smembers(keys.PARTNERS)
    pipe.xlen(keys.DEAD_LETTERS)
    live.queue_heads(pipe, 1)


def _ask_partners(pipe: Any, domains: Sequence[str]) -> None:
    for domain in domains:
        pipe.hget(keys.partner(domain), "retry_at")


def _domains(members: Iterable[bytes | str]) -> list[str]:
    return sorted(text(member) for member in members)[:MAX_RELAYS]


def _figures(
    counted: Mapping[bytes | str, bytes | str],
    dead: int,
    heads: Iterable[Sequence[Any]],
    retry_at: Mapping[str, bytes | str | None],
    now: float | None,
) -> dict[str, float]:
    moment = time.time() if now is None else now
    counts: dict[str, dict[str, float]] = {}
    for name, value in counted.items():
        kind, _, label = text(name).partition(counters.SEPARATOR)
        counts.setdefault(kind, {})[label] = number(value)
    figures: dict[str, float] = {"federation_dead_letters": float(dead)}
    for metric, kind in (
        ("federation_message_success", counters.SUCCESS),
        ("federation_message_error", counters.ERROR),
    ):
        for relay, count in _busiest(counts.get(kind, {})).items():
            figures[series(metric, relay=relay)] = count
    for reason, count in counts.get(counters.DROPPED, {}).items():
        figures[series("federation_message_dropped_total", reason=reason)] = count
    figures |= counts.get(counters.EVENTS, {})
    figures |= _latency(counts.get(counters.LATENCY, {}))
    for shard, head in enumerate(live.read_heads(heads)):
        age_s = moment - head.oldest_at if head.length else 0.0
        figures[series("federation_outbox_messages", shard=str(shard))] = float(head.length)
        figures[series("federation_outbox_oldest_seconds", shard=str(shard))] = max(0.0, age_s)
    for relay, stored in retry_at.items():
        left_s = max(0.0, number(stored) - moment)
        figures[series("federation_backoff_seconds", relay=relay)] = left_s
    return figures


def _busiest(counts: Mapping[str, float]) -> dict[str, float]:
    if len(counts) <= MAX_RELAYS:
        return dict(counts)
    ordered = sorted(counts.items(), key=lambda item: item[1], reverse=True)
    rest = sum(count for _, count in ordered[MAX_RELAYS:])
    return {**dict(ordered[:MAX_RELAYS]), OTHER: rest}


def _latency(counts: Mapping[str, float]) -> dict[str, float]:
    """Return a histogram in the form of Prometheus: each bucket includes the smaller ones."""
    name = "federation_delivery_seconds"
    figures: dict[str, float] = {}
    total = 0.0
    for label in counters.LATENCY_LABELS:
        total += counts.get(label, 0.0)
        figures[series(f"{name}_bucket", le=label)] = total
    figures[f"{name}_sum"] = counts.get(counters.LATENCY_SUM_MS, 0.0) / 1000
    figures[f"{name}_count"] = total
    return figures
