"""Merging of records that older releases and their backups have under several spellings of a name.

Names used to be compared as bytes, so one relay may have rows in the database and states in Redis
under several spellings. At the start they are merged under the canonical name: a decision under any
spelling applies, counts are added, and the latest of each time is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import redis.exceptions
from django.db import transaction
from redis import Redis

from proto.federation.domains import fold, is_name
from relay.federation import counters
from relay.federation.models import MAX_NOTE_CHARS, RelayNode
from relay.ops.redis_client import number, text
from relay.queues import keys

logger = logging.getLogger(__name__)

_COUNTS: Final = ("sent", "received")
_TIMES: Final = ("last_success", "last_failure", "heard", "retry_at")
_FLAGS: Final = ("trusted", "paused", "blocked")


def unite_rows() -> int:
    """Merge the rows of each relay.

    Returns:
        Number of other spellings found.
    """
    with transaction.atomic():
        others = [node for node in RelayNode.objects.all() if fold(node.domain) != node.domain]
        for other in others:
            name = fold(other.domain)
            node = RelayNode.objects.filter(domain=name).first() or RelayNode(domain=name)
            for flag in _FLAGS:
                setattr(node, flag, getattr(node, flag) or getattr(other, flag))
            notes = dict.fromkeys(node.note.splitlines() + other.note.splitlines())
            node.note = "\n".join(notes)[:MAX_NOTE_CHARS]
            node.save()
            other.delete()
    if others:
        logger.info("%d other spellings of relays are united with their names", len(others))
    return len(others)


def unite_states(client: Redis) -> int:
    """Merge the states of each relay in Redis.

    Args:
        client: connection whose replies are bytes.

    Returns:
        Number of other spellings found.
    """
    try:
        names = [text(member) for member in client.smembers(keys.PARTNERS)]
        others = [name for name in names if fold(name) != name and is_name(name)]
        for other in others:
            _unite(client, other, fold(other))
    except redis.exceptions.RedisError as error:
        logger.error("other spellings of relays are not united: %s", error)
        return 0
    return len(others)


def _unite(client: Redis, other: str, name: str) -> None:
    old, new = keys.partner(other), keys.partner(name)
    counts = (counters.SUCCESS, counters.ERROR)
    with client.pipeline(transaction=False) as pipe:
        pipe.hgetall(old)
        pipe.hgetall(new)
        pipe.ttl(keys.failures(other))
        pipe.hmget(keys.FEDERATION_COUNTERS, [counters.field(each, other) for each in counts])
        there, here, ttl_s, counted = pipe.execute()
    fields = _united(_texts(there), _texts(here))
    with client.pipeline(transaction=True) as pipe:
        if fields:
            pipe.hset(new, mapping=fields)
        if ttl_s > 0:
            failures = keys.failures(name)
            pipe.zunionstore(failures, (failures, keys.failures(other)), aggregate="MAX")
            pipe.expire(failures, ttl_s)
        for each, count in zip(counts, counted, strict=True):
            if count:
                pipe.hincrby(keys.FEDERATION_COUNTERS, counters.field(each, name), int(count))
            pipe.hdel(keys.FEDERATION_COUNTERS, counters.field(each, other))
        pipe.delete(old, keys.failures(other))
        pipe.sadd(keys.PARTNERS, name)
        pipe.srem(keys.PARTNERS, other)
        pipe.execute()


def _united(there: Mapping[str, str], here: Mapping[str, str]) -> dict[Any, Any]:
    found = {**there, **here}
    for field in _COUNTS:
        if field in found:
            found[field] = str(int(number(there.get(field)) + number(here.get(field))))
    for field in _TIMES:
        if field in found:
            found[field] = max(there.get(field, ""), here.get(field, ""), key=number)
    return found


def _texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    return {text(name): text(value) for name, value in fields.items()}
