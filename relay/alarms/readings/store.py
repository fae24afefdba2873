"""Readings of Redis, and of background work and full queues, which are stored in it."""

from __future__ import annotations

import json
from typing import Final

from relay.alarms.readings.look import Look, Reading, Readings
from relay.ops import background
from relay.queues import keys
from relay.server.redis_check import SAFE_POLICY

_STATUSES: Final = (
    ("aof_last_write_status", "the last write of the append-only file"),
    ("aof_last_bgrewrite_status", "the last rewrite of the append-only file"),
    ("rdb_last_bgsave_status", "the last snapshot"),
)


class NotSweptError(Exception):
    """No worker has swept the queues recently."""


def memory(look: Look) -> Readings:
    """Read how much of its memory Redis uses, and its policy for when it is full."""
    facts = look.redis.info("memory")
    used, bound = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    whole = bound or int(facts.get("total_system_memory", 0))
    part = 100 * used / whole if whole else 0.0
    of_what = "maxmemory" if bound else "the machine's memory (maxmemory is not set)"
    detail = f"{used:,} of {whole:,} bytes, {of_what}"
    if any(worker.state == "storage_full" for worker in look.workers):
        part, detail = max(part, 100.0), f"Redis refuses to store; {detail}"
    policy = str(facts.get("maxmemory_policy", SAFE_POLICY))
    return {
        "redis_memory": {"": Reading(round(part, 1), detail)},
        "redis_policy": {
            "": Reading(float(policy != SAFE_POLICY), f"maxmemory-policy is {policy}")
        },
    }


def persistence(look: Look) -> Readings:
    """Read whether Redis could write its data to disk."""
    facts = look.redis.info("persistence")
    failed = [what for name, what in _STATUSES if str(facts.get(name, "ok")) != "ok"]
    detail = f"failed: {', '.join(failed)}" if failed else "ok"
    if look.disk_full:
        detail = f"{detail}; it refuses all writes: {look.disk_full}"
    return {"redis_persistence": {"": Reading(float(bool(failed)), detail)}}


def background_work(look: Look) -> Readings:
    """Read the task queues that no Celery worker serves."""
    missing = background.queues_without_worker(look.redis)
    return {
        "background_down": {
            queue: Reading(None, look.disk_full)
            if look.disk_full
            else Reading(1.0, f"no Celery worker takes tasks from queue {queue}")
            for queue in missing
        }
    }


def queues(look: Look) -> Readings:
    """Read the fullest queues, as the workers' last sweep found them.

    Raises:
        NotSweptError: no sweep is recent enough.
    """
    stored = look.redis.get(keys.FULLEST)
    if stored is None:
        raise NotSweptError("no worker has looked through the queues within 90 s")
    bounds = look.config.queue
    found = {}
    for text, messages, size in json.loads(stored):
        part = max(messages / bounds.max_messages, size / bounds.max_bytes)
        found[str(text)] = Reading(round(100 * part, 1), f"{messages:,} messages, {size:,} bytes")
    return {"queue_near_full": found, "twin_waiting": _twins(look)}


def _twins(look: Look) -> dict[str, Reading]:
    """Read twins near a limit of waiting messages, for the twin or from it, whichever is higher."""
    found: dict[str, Reading] = {}
    for percent, name, (messages, size, count, unknown) in json.loads(
        look.redis.get(keys.FULLEST_TWINS) or "[]"
    ):
        where = "for it" if name.startswith(keys.RECEIVED) else "of it"
        detail = f"{messages:,} messages {where}, {size:,} bytes, {count:,} queues"
        if unknown:
            detail += f", {unknown:,} of them of sessions that never signed in"
        found.setdefault(
            name.rpartition(":")[2], Reading(percent, detail)
        )  # the fullest comes first
    return found
