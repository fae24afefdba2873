"""Decisions about other relays. Everything that writes a `RelayNode` goes through here.

The database is the record. After the commit the relay's field in `relay:control` is made to fit,
and workers and drainers act on it within a second. Where Redis was away, `publish_all` heals it:
the relay calls it when it starts. Rank and back-off are Redis' own: `reset` changes them there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

import redis.exceptions
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q

from relay.federation.models import RelayNode, check_domain
from relay.ops import control
from relay.ops.redis_client import client, text
from relay.queues import keys

logger = logging.getLogger(__name__)

MAX_NODES: Final = 10_000
"""Rows made for domains that turned up by themselves: twins name theirs freely."""


def save(node: RelayNode) -> None:
    """Store one row, after validation, and tell workers and drainers.

    Raises:
        django.core.exceptions.ValidationError: a field is out of bounds.
    """
    node.full_clean(validate_unique=False)
    with transaction.atomic():
        node.save()
        transaction.on_commit(partial(_publish, [node.domain]))


def trust(domain: str, trusted: bool = True) -> None:
    """Accept what this relay sends without the signature of its source twin, or no longer."""
    node = _row(domain)
    node.trusted = trusted
    save(node)


def pause(domain: str) -> None:
    """Send nothing to this relay for now."""
    node = _row(domain)
    node.paused = True
    save(node)


def resume(domain: str) -> None:
    """Send to this relay again, at once: a back-off it had is over as well."""
    node = _row(domain)
    node.paused = False
    save(node)
    reset([domain], rank=False)


def block(domain: str) -> None:
    """Neither send to this relay nor accept anything from it."""
    node = _row(domain)
    node.blocked = True
    save(node)


def unblock(domain: str) -> None:
    """Treat a blocked relay as any other again."""
    node = _row(domain)
    node.blocked = False
    save(node)


def reset(domains: Iterable[str], *, rank: bool = True) -> None:
    """End the back-off of these relays and, with `rank`, forget their failures.

    Raises:
        relay.ops.control.ControlError: Redis does not answer.
    """
    try:
        with client().pipeline(transaction=True) as pipe:
            for domain in domains:
                pipe.hdel(keys.partner(domain), "retry_at", "failures")
                if rank:
                    pipe.delete(keys.failures(domain))
            pipe.execute()
    except redis.exceptions.RedisError as error:
        raise control.ControlError(f"Redis does not answer: {error}") from error
    # The version is what drainers compare: they read the partners' state again.
    control.change({})


def forget(domains: Iterable[str]) -> None:
    """Remove these relays' rows and what Redis knows of them. One that is used comes back."""
    names = list(domains)
    with transaction.atomic():
        RelayNode.objects.filter(domain__in=names).delete()
        transaction.on_commit(partial(_forget, names))


def discover() -> int:
    """Make rows for the relays that turned up in traffic.

    Returns:
        How many are new.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    room = MAX_NODES - RelayNode.objects.count()
    if room <= 0:
        return 0
    known = {text(member) for member in client().smembers(keys.PARTNERS)}
    new = known - set(RelayNode.objects.values_list("domain", flat=True))
    rows = [RelayNode(domain=name) for name in sorted(new) if _is_domain(name)][:room]
    if rows:
        RelayNode.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def publish_all() -> None:
    """Make `relay:control` what the database says, whatever it was before.

    Raises:
        relay.ops.control.ControlError: Redis does not answer.
    """
    decided = RelayNode.objects.filter(Q(trusted=True) | Q(paused=True) | Q(blocked=True))
    control.replace((control.RELAY_PREFIX,), _fields(decided.iterator()))


def _publish(domains: list[str]) -> None:
    """Make these relays' fields what the database says now, also if it was changed once more."""
    put = _fields(RelayNode.objects.filter(domain__in=domains))
    names = [f"{control.RELAY_PREFIX}{domain}" for domain in domains]
    try:
        control.change(put, [name for name in names if name not in put])
    except control.ControlError:
        # Committed all the same; the operator sees the log line, the next start publishes it.
        logger.error("decisions on %d relays are saved but not in force yet", len(domains))


def _forget(domains: list[str]) -> None:
    _publish(domains)
    try:
        with client().pipeline(transaction=True) as pipe:
            for domain in domains:
                pipe.srem(keys.PARTNERS, domain)
                pipe.delete(keys.partner(domain), keys.failures(domain))
            pipe.execute()
    except redis.exceptions.RedisError as error:
        logger.error("%d relays are forgotten, but not by Redis: %s", len(domains), error)


def _fields(nodes: Iterable[RelayNode]) -> dict[str, str]:
    return {
        f"{control.RELAY_PREFIX}{node.domain}": " ".join(node.flags) for node in nodes if node.flags
    }


def _is_domain(name: str) -> bool:
    try:
        check_domain(name)
    except ValidationError:
        return False
    return True


def _row(domain: str) -> RelayNode:
    return RelayNode.objects.filter(domain=domain).first() or RelayNode(domain=domain)
