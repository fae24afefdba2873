"""Operators' decisions about partner relays. Every write of a `RelayNode` goes through here.

The database is the authority. After the commit the relay's field in `relay:control` is updated, and
workers and drainers act on it within a second. If Redis is unavailable the decision is marked as
pending, and a worker calls `publish_all` when Redis is back. Rank, back-off and dead letters are
only in Redis, and are changed there.

Relays are identified by their canonical names (`proto.federation.domains`), whatever spelling
callers use.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import redis.exceptions
from django.db import transaction
from django.db.models import Q

from proto.federation.domains import fold, is_name
from relay.access.actor import Actor
from relay.access.errors import NotFound
from relay.audit import services as audit
from relay.federation import dead_letters, letters, spellings
from relay.federation.models import RelayNode
from relay.ops import control, pending
from relay.ops.redis_client import client, text
from relay.queues import headers, keys

logger = logging.getLogger(__name__)

NO_LETTER: Final = "this dead letter is gone already"

MAX_REQUEUED: Final = 1000
"""Maximum number of dead letters sent again by one call, which holds the audit log's lock."""

MAX_NODES: Final = 10_000
"""Maximum number of rows created for domains met in traffic: twins name their relays freely."""


def save(node: RelayNode, *, actor: Actor) -> None:
    """Validate and store one row, and notify workers and drainers.

    Raises:
        relay.access.errors.Invalid: a field is out of bounds.
    """
    node.domain = fold(node.domain)
    with audit.change(actor, "relay.put", target=node.domain) as change:
        _store(node, change)


def trust(domain: str, *, actor: Actor) -> None:
    """Accept messages of this relay without the signatures of their source twins."""
    _decide(domain, "relay.trust", actor, trusted=True)


def distrust(domain: str, *, actor: Actor) -> None:
    """Check the signatures of this relay's messages again."""
    _decide(domain, "relay.distrust", actor, trusted=False)


def pause(domain: str, *, actor: Actor) -> None:
    """Stop sending to this relay until it is resumed."""
    _decide(domain, "relay.pause", actor, paused=True)


def resume(domain: str, *, actor: Actor) -> None:
    """Send to this relay again at once; this also ends a back-off.

    Raises:
        relay.access.errors.Away: Redis does not answer.
    """
    domain = fold(domain)
    with audit.change(actor, "relay.resume", target=domain) as change:
        node = _row(domain)
        node.paused = False
        _store(node, change)
        _end_back_off(domain, rank=False)


def block(domain: str, *, actor: Actor) -> None:
    """Neither send to this relay nor accept anything from it."""
    _decide(domain, "relay.block", actor, blocked=True)


def unblock(domain: str, *, actor: Actor) -> None:
    """Unblock a partner relay."""
    _decide(domain, "relay.unblock", actor, blocked=False)


def reset(domain: str, *, actor: Actor) -> None:
    """End the back-off of a partner relay and delete its failures.

    Raises:
        relay.access.errors.Away: Redis does not answer.
    """
    domain = fold(domain)
    with audit.change(actor, "relay.reset", target=domain) as change:
        state = _end_back_off(domain, rank=True)
        change.before = {name: value for name, value in state.items() if value is not None}


def forget(domains: Iterable[str], *, actor: Actor) -> int:
    """Remove these relays' rows and their state in Redis. A relay that is used again reappears.

    Returns:
        Number of rows removed.
    """
    names = list(map(fold, domains))
    removed = 0
    with transaction.atomic():
        for domain in names:
            with audit.change(actor, "relay.forget", target=domain) as change:
                change.before = _told(domain)
                change.happened = bool(RelayNode.objects.filter(domain=domain).delete()[0])
            removed += change.happened
        transaction.on_commit(partial(_forget, names))
    return removed


def requeue(entry: str, *, actor: Actor) -> str:
    """Send a dead letter again.

    Returns:
        New id in the outbox.

    Raises:
        relay.access.errors.NotFound: there is no such letter.
        relay.access.errors.Away: Redis does not answer.
    """
    with audit.change(actor, "letter.requeue", target=entry) as change:
        again = dead_letters.requeue(client(), entry)
        if again is None:
            raise NotFound(NO_LETTER)
        change.after = {"outbox": again}
    return again


def requeue_all(domain: str, *, actor: Actor) -> int:
    """Send the dead letters of a relay again, the oldest first; at most `MAX_REQUEUED` of them.

    Returns:
        Number of letters sent.

    Raises:
        relay.access.errors.NotFound: the relay has no dead letters.
        relay.access.errors.Away: Redis does not answer.
    """
    domain = fold(domain)
    with audit.change(actor, "letter.requeue", target=domain) as change:
        # Each letter is moved by a script of its own; what was moved before an outage stays moved.
        entries = letters.all_dead_ids(client(), domain)[:MAX_REQUEUED]
        count = sum(dead_letters.requeue(client(), entry) is not None for entry in entries)
        if not count:
            raise NotFound(f"there is no dead letter for {domain}")
        change.after = {"letters": count}
    return count


def delete_letter(entry: str, *, actor: Actor) -> None:
    """Delete a dead letter.

    Raises:
        relay.access.errors.NotFound: there is no such letter.
        relay.access.errors.Away: Redis does not answer.
    """
    with audit.change(actor, "letter.delete", target=entry):
        if not headers.is_entry(entry) or not dead_letters.delete(client(), entry):
            raise NotFound(NO_LETTER)


def discover() -> int:
    """Create rows for the relays that were met in traffic.

    Returns:
        Number of new rows.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    room = MAX_NODES - RelayNode.objects.count()
    if room <= 0:
        return 0
    known = {fold(text(member)) for member in client().smembers(keys.PARTNERS)}
    new = known - set(RelayNode.objects.values_list("domain", flat=True))
    rows = [RelayNode(domain=name) for name in sorted(new) if is_name(name)][:room]
    if rows:
        RelayNode.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def publish_all() -> None:
    """Overwrite the relays' fields of `relay:control` with the decisions in the database.

    Records that an older release or a backup has under other spellings of a relay are merged under
    its canonical name: rows before that, states in Redis after it.

    Raises:
        relay.ops.control.ControlError: Redis does not answer.
    """
    spellings.unite_rows()
    decided = RelayNode.objects.filter(Q(trusted=True) | Q(paused=True) | Q(blocked=True))
    control.replace((control.RELAY_PREFIX,), _fields(decided.iterator()))
    spellings.unite_states(client())


def _decide(domain: str, action: str, actor: Actor, **flags: bool) -> None:
    domain = fold(domain)
    with audit.change(actor, action, target=domain) as change:
        node = _row(domain)
        for name, value in flags.items():
            setattr(node, name, value)
        _store(node, change)


def _store(node: RelayNode, change: audit.Change) -> None:
    node.full_clean(validate_unique=False)
    change.before = _told(node.domain)
    node.save()
    change.after = _told(node.domain)
    transaction.on_commit(partial(_publish, [node.domain]))


def _told(domain: str) -> dict[str, Any] | None:
    """Return a relay's row in the form of the audit log."""
    fields = ("trusted", "paused", "blocked", "note")
    row: dict[str, Any] | None = RelayNode.objects.filter(domain=domain).values(*fields).first()
    return row


def _end_back_off(domain: str, *, rank: bool) -> dict[str, str | None]:
    """End a back-off and return its former state; with `rank`, also delete the relay's failures."""
    names = ("retry_at", "failures")
    with client().pipeline(transaction=True) as pipe:
        pipe.hmget(keys.partner(domain), names)
        pipe.hdel(keys.partner(domain), *names)
        if rank:
            pipe.delete(keys.failures(domain))
        found = pipe.execute()[0]
    # This changes the version, which makes drainers read the partners' state again.
    control.change({})
    return {name: text(value) if value else None for name, value in zip(names, found, strict=True)}


def _publish(domains: list[str]) -> None:
    """Publish what the database says now of these relays, even if it has changed once more."""
    put = _fields(RelayNode.objects.filter(domain__in=domains))
    names = [f"{control.RELAY_PREFIX}{domain}" for domain in domains]
    try:
        control.change(put, [name for name in names if name not in put])
    except control.ControlError:
        pending.mark(pending.Kind.RELAYS)


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


def _row(domain: str) -> RelayNode:
    return RelayNode.objects.filter(domain=domain).first() or RelayNode(domain=domain)
