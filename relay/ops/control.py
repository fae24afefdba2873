"""Orders of operators to the running workers: hash `relay:control`.

Each change writes its field and increments `version` in one MULTI. Workers compare the version with
each heartbeat, so a change reaches them within a second; the nudge over channels-redis only makes
that faster. Bans and limits are a copy of the database, which `relay.limits.services` can rewrite.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import redis.exceptions
from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from redis import Redis

from relay.access.errors import Away
from relay.ops.redis_client import client, text
from relay.queues import keys

logger = logging.getLogger(__name__)

VERSION: Final = "version"
BAN_PREFIX: Final = "ban:"
ADDRESS_BAN_PREFIX: Final = "ban_address:"
LIMIT_PREFIX: Final = "limit:"
DEFAULT_LIMIT: Final = "limit"
WAITING_PREFIX: Final = "waiting:"
"""Prefix of a twin's bounds of waiting messages, bytes and queues; 0: the relay's own bound."""
KEY_BAN_PREFIX: Final = "ban_key:"
KEY_LIMIT_PREFIX: Final = "limit_key:"
NETWORK_LIMIT_PREFIX: Final = "limit_address:"
"""Prefixes of limits of SBD keys, and of networks in SBD, in kilobits per second."""
KICK_PREFIX: Final = "kick:"
KICK_TWIN_PREFIX: Final = "kick_twin:"
KICK_CONNECTION_PREFIX: Final = "kick_connection:"
"""Prefix of kicks of a connection with streams: the boot id of its worker, and its number there."""
DRAIN_PREFIX: Final = "drain:"
RELAY_PREFIX: Final = "relay:"
"""Prefix of what `relay.federation.services` publishes of a partner relay, by its domain."""

GROUP: Final = "relay.workers"
CHANGED: Final = {"type": "control.changed"}

# Bounded, because a reason is shown in close frames, logs and pages.
MAX_REASON_CHARS: Final = 120

# The worker that holds the session carries out a kick within a second. The order stays in the hash
# for a worker that was unavailable; a later kick removes it once it is this old, in seconds.
KICK_LIFE_S: Final = 60
_KICK_TIMES: Final = "relay:control:kicks"


class ControlError(Away):
    """The workers could not be notified: Redis does not answer. The text tells the operator so."""


def kick(key: str, epoch: int, reason: str = "kicked") -> None:
    """End a session.

    Args:
        key: Key of the session, `<twin>` or `<twin>:<sid>`.
        epoch: Epoch of the connection to end; a newer connection stays.
        reason: Reason, for the log.

    Raises:
        ControlError: Redis does not answer.
    """
    _order_kick(f"{KICK_PREFIX}{key}", epoch, reason)


def kick_twin(twin: int, epoch: int, reason: str = "kicked") -> None:
    """End the sessions of a twin up to an epoch; those that connect later have a higher one.

    Raises:
        ControlError: Redis does not answer.
    """
    _order_kick(f"{KICK_TWIN_PREFIX}{twin}", epoch, reason)


def kick_connection(worker: str, number: int, reason: str = "kicked") -> None:
    """End a connection with streams, and so its sessions.

    Args:
        worker: Boot id of the worker that serves it.
        number: Number of the connection there, which is never reused.

    Raises:
        ControlError: Redis does not answer.
    """
    _order_kick(f"{KICK_CONNECTION_PREFIX}{worker}:{number}", number, reason)


def _order_kick(field: str, epoch: int, reason: str) -> None:
    try:
        connection = client()
        now = connection.time()[0]
        done = connection.zrangebyscore(_KICK_TIMES, "-inf", now - KICK_LIFE_S)
        with connection.pipeline(transaction=True) as pipe:
            if done:
                pipe.hdel(keys.CONTROL, *done)
                pipe.zrem(_KICK_TIMES, *done)
            pipe.zadd(_KICK_TIMES, {field: now})
            pipe.hset(keys.CONTROL, field, f"{epoch}|{reason[:MAX_REASON_CHARS]}")
            pipe.hincrby(keys.CONTROL, VERSION, 1)
            pipe.execute()
    except redis.exceptions.RedisError as error:
        raise _unreachable(error) from error
    nudge()


def drain(boot_id: str) -> None:
    """Ask a worker to stop accepting, close its sessions and end; its supervisor starts a new one.

    Raises:
        ControlError: Redis does not answer.
    """
    try:
        connection = client()
        done = [
            name
            for name in _fields(connection)
            if name.startswith(DRAIN_PREFIX)
            and not connection.exists(keys.worker(name.removeprefix(DRAIN_PREFIX)))
        ]
    except redis.exceptions.RedisError as error:
        raise _unreachable(error) from error
    change({f"{DRAIN_PREFIX}{boot_id}": "1"}, done)


def change(put: Mapping[str, str], remove: Sequence[str] = ()) -> None:
    """Write and remove fields, increment the version and nudge the workers.

    Raises:
        ControlError: Redis does not answer.
    """
    try:
        with client().pipeline(transaction=True) as pipe:
            if remove:
                pipe.hdel(keys.CONTROL, *remove)
            if put:
                pipe.hset(keys.CONTROL, items=[part for pair in put.items() for part in pair])
            pipe.hincrby(keys.CONTROL, VERSION, 1)
            pipe.execute()
    except redis.exceptions.RedisError as error:
        raise _unreachable(error) from error
    nudge()


def replace(prefixes: Sequence[str], put: Mapping[str, str], names: Sequence[str] = ()) -> None:
    """Replace the fields that begin with one of the prefixes, or have one of the names, by `put`.

    Raises:
        ControlError: Redis does not answer.
    """
    try:
        present = _fields(client())
    except redis.exceptions.RedisError as error:
        raise _unreachable(error) from error
    replaced = [name for name in present if name.startswith(tuple(prefixes)) or name in names]
    stale = [name for name in replaced if name not in put]
    if stale or any(present.get(name) != value for name, value in put.items()):
        change(put, stale)


def version() -> str:
    """Return the version that workers compare; empty if Redis has none.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    return text(client().hget(keys.CONTROL, VERSION) or b"")


def nudge() -> None:
    """Make the workers check at once. A failure is harmless: they check every second."""
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        async_to_sync(layer.group_send)(GROUP, CHANGED)
    except (redis.exceptions.RedisError, OSError) as error:
        logger.warning("workers could not be nudged, they look by themselves: %s", error)


def _fields(connection: Redis) -> dict[str, str]:
    return {text(name): text(value) for name, value in connection.hgetall(keys.CONTROL).items()}


def _unreachable(error: Exception) -> ControlError:
    logger.error("workers could not be told: %s", error)
    return ControlError("the relay workers could not be told: Redis does not answer")
