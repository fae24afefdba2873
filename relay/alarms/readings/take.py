"""Calls every reader once, and reports what could not be read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from django.db import Error as DatabaseError
from redis import Redis
from redis.exceptions import RedisError

from relay.alarms.bounds import MAX_ERROR_CHARS, MAX_SUBJECTS
from relay.alarms.readings import host, lattice, network, recorded, store, workers
from relay.alarms.readings.look import Look, Reading, Readings, worst
from relay.alarms.rules import BY_KEY
from relay.ops.printable import shown
from relay.ops.redis_client import disk_full
from relay.ops.starting import is_starting

logger = logging.getLogger(__name__)

clock = time.time
"""The clock that the alarms watch, in unix seconds."""


class Reader(NamedTuple):
    """One reader.

    Attributes:
        rules: rules for which it has readings.
        read: function that takes the readings.
        redis: whether it needs Redis.
    """

    name: str
    rules: tuple[str, ...]
    read: Callable[[Look], Readings]
    redis: bool = True


READERS: Final = (
    Reader("redis memory", ("redis_memory", "redis_policy"), store.memory),
    Reader("redis persistence", ("redis_persistence",), store.persistence),
    Reader("background work", ("background_down",), store.background_work),
    Reader("queues", ("queue_near_full", "twin_waiting"), store.queues),
    Reader("workers", ("worker_silent", "worker_restarts"), workers.lives),
    Reader("worker load", ("loop_lag",), workers.load),
    Reader("limits", ("limit_storm",), workers.storm),
    Reader("SBD", ("sbd_auth_failures", "sbd_slow_readers"), workers.sbd),
    Reader("finds", ("check_found", "redis_went_back", "redis_restarted"), workers.finds),
    Reader("commits", ("commit_latency",), workers.commits),
    Reader("outbox", ("outbox_age",), network.outbox),
    Reader("partners", ("partner_down",), network.partners),
    Reader("chain", ("chain_lag",), network.chain),
    Reader(
        "lattice",
        (
            *("lattice_forged", "lattice_unknown", "lattice_unlooked"),
            *("lattice_missing", "lattice_nats_lost"),
        ),
        lattice.lattice,
    ),
    Reader("recorded events", ("events_lost", "events_waiting"), recorded.events),
    Reader("disk", ("disk",), host.disk, redis=False),
    Reader(
        "certificate", ("certificate_expiry", "certificate_expired"), host.certificate, redis=False
    ),
    Reader("clock", ("clock_step",), host.clock, redis=False),
    Reader("receivers", ("receiver_failing",), host.receivers, redis=False),
)


class Unknown(NamedTuple):
    """A reader that failed.

    Attributes:
        rules: rules that have no reading therefore.
        error: reason.
        redis_away: whether it was skipped because Redis does not answer.
    """

    rules: tuple[str, ...]
    error: str
    redis_away: bool = False


class Taken(NamedTuple):
    """Results of all readers.

    Attributes:
        readings: readings by rule and subject, of every rule that could be read.
        unknown: failed readers, by name of the reader.
        memory: state for the next evaluation, by name of the reader.
        starting: whether a relay has just started (`relay.ops.starting`).
    """

    readings: Readings
    unknown: dict[str, Unknown]
    memory: dict[str, Any]
    starting: bool


def take(config: Any, redis: Redis, memory: dict[str, Any]) -> Taken:
    """Take all readings once.

    Args:
        config: settings of the platform.
        redis: Redis client.
        memory: `Taken.memory` of the last call.
    """
    now, monotonic = clock(), time.monotonic()
    looks = Look(config, redis, now, monotonic, {})
    readings: Readings = {}
    unknown: dict[str, Unknown] = {}
    remembered: dict[str, Any] = {}
    away = _ping(redis)
    readings["redis_away"] = {"": Reading(float(bool(away)), away)}
    for reader in READERS:
        looks.memory = memory.get(reader.name, {})
        if reader.redis and away:
            unknown[reader.name] = Unknown(reader.rules, away, redis_away=True)
        else:
            try:
                found = reader.read(looks)
            except (RedisError, DatabaseError, OSError, ValueError, store.NotSweptError,
                    host.UnreadableError) as error:  # fmt: skip
                unknown[reader.name] = Unknown(reader.rules, shown(str(error), MAX_ERROR_CHARS))
            except Exception as error:
                # A bug in one reader must not disable all other alarms.
                logger.exception("alarms: reading %s", reader.name)
                unknown[reader.name] = Unknown(reader.rules, f"a fault: {type(error).__name__}")
            else:
                for rule in reader.rules:
                    readings[rule] = _few(rule, found.get(rule, {}))
        remembered[reader.name] = looks.memory
    return Taken(readings, unknown, remembered, not away and _starting(redis))


def _few(rule: str, found: dict[str, Reading]) -> dict[str, Reading]:
    if len(found) > MAX_SUBJECTS and not BY_KEY[rule].rising:
        raise ValueError(f"rule {rule} has many subjects and small readings are the bad ones")
    return worst(found, MAX_SUBJECTS)


def _starting(redis: Redis) -> bool:
    try:
        return is_starting(redis)
    except RedisError:
        return False


def _ping(redis: Redis) -> str:
    """Return why Redis does not answer; empty if it does."""
    try:
        redis.time()
        disk_full(redis)  # unlike TIME, this is refused while Redis loads its file
    except RedisError as error:
        return shown(str(error), MAX_ERROR_CHARS) or type(error).__name__
    return ""
