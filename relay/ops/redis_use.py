"""What Redis' memory is used for: an estimate from a bounded sample of the keys.

Single keys, of which there is one of a kind, are measured. Of the others at most `MAX_KEYS` are
measured, as returned by `SCAN`, which is in no order, and represent all. Redis measures a large key
from some of its entries. So each figure except the total is an estimate; the worst case is a rare
large queue among many small ones.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.ops.redis_client import client, text
from relay.queues import keys

MAX_KEYS: Final = 2000
STEP: Final = 200
"""Keys measured at a time, in less than a millisecond; then Redis serves other clients."""
KEPT_S: Final = 10.0
"""Seconds for which a result is cached, so that a page viewed by several users measures once."""
OTHER: Final = "other"
OVERHEAD: Final = "not in keys"
"""Connections, buffers, the tables of keys, and what the estimate misses."""

USES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("queues", ("stream:", "relay:held:", "relay:from:", "relay:to:", "relay:queues:")),
    ("outbox", ("federation:", keys.REFERENCE_OUTBOX)),
    (
        "sessions",
        ("relay:sessions", "relay:known:", "relay:guest", "relay:worker", "relay:commit", "sbd:"),
    ),
    ("registry and caches", ("relay:twin", "relay:chain", "relay:control")),
    ("events and history", ("relay:history", "relay:trace", "relay:analytics")),
    ("limits", ("limits:",)),
    ("background tasks", ("celery", "_kombu", "unacked", "chain", "default", "relay:tasks")),
)
"""Use of keys by prefix; the first match counts."""
SINGLE: Final = (
    keys.SESSIONS, keys.SBD_KEYS, keys.GUESTS, keys.TWINS, keys.CONTROL, keys.HISTORY,
    keys.DEAD_LETTERS, keys.CHAIN_EVENTS, keys.REFERENCE_OUTBOX,
    *map(keys.outbox, range(keys.OUTBOX_SHARDS)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RedisUse:
    """Use of Redis' memory.

    Attributes:
        used_bytes: Total memory that Redis allocated.
        rss_bytes: Memory that the machine gives to its process.
        limit_bytes: `maxmemory`; 0: no limit.
        keys: Number of keys.
        sampled: Number of keys that were measured.
        file_bytes: Size of its append-only file; 0: there is no such file.
        uses: Bytes by use, the largest first; estimates.
    """

    used_bytes: int
    rss_bytes: int
    limit_bytes: int
    keys: int
    sampled: int
    file_bytes: int
    uses: dict[str, int]


_lock: Final = threading.Lock()
_kept: dict[Redis, tuple[float, RedisUse]] = {}


def look() -> RedisUse:
    """Return the current use, or one measured within the last `KEPT_S`.

    Raises:
        Away: Redis does not answer.
    """
    try:
        redis = client()
        with _lock:
            at, found = _kept.get(redis, (float("-inf"), None))
            if found is None or time.monotonic() - at >= KEPT_S:
                found = measure(redis)
                _kept.clear()
                _kept[redis] = time.monotonic(), found
            return found
    except RedisError as error:
        raise Away(f"Redis does not answer: {error}") from error


def use_of(name: str) -> str:
    """Return what a key is used for."""
    for use, beginnings in USES:
        if name.startswith(beginnings):
            return use
    return OTHER


def measure(redis: Redis) -> RedisUse:
    """Measure the use of Redis now.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    facts: dict[str, Any] = redis.info("everything")
    database = int(redis.connection_pool.connection_kwargs.get("db") or 0)
    total = int((facts.get(f"db{database}") or {}).get("keys", 0))
    uses: Counter[str] = Counter()
    single = _sizes(redis, list(SINGLE))
    for name, size in single.items():
        uses[use_of(name)] += size
    sampled: Counter[str] = Counter()
    seen: set[str] = set()
    cursor = 0
    while len(seen) < MAX_KEYS:
        cursor, found = redis.scan(cursor, count=STEP)
        names = {text(name) for name in found} - single.keys() - seen
        seen |= names
        for name, size in _sizes(redis, sorted(names)).items():
            sampled[use_of(name)] += size
        if not cursor:
            break
    others = max(len(seen), total - len(single))
    for use, size in sampled.items():
        uses[use] += size * others // len(seen)
    used = int(facts.get("used_memory", 0))
    uses[OVERHEAD] = max(0, used - sum(uses.values()))
    return RedisUse(
        used_bytes=used,
        rss_bytes=int(facts.get("used_memory_rss", 0)),
        limit_bytes=int(facts.get("maxmemory", 0)),
        keys=total,
        sampled=len(single) + len(seen),
        file_bytes=int(facts.get("aof_current_size", 0)),
        uses=dict(uses.most_common()),
    )


def _sizes(redis: Redis, names: list[str]) -> dict[str, int]:
    """Return the bytes of those keys that exist, by name."""
    with redis.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.memory_usage(name, samples=5)
        replies = pipe.execute(raise_on_error=False)
    return {name: size for name, size in zip(names, replies, strict=True) if isinstance(size, int)}
