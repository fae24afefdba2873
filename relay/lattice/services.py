"""Changes of policies, and requests to the lattice. All writes of `LatticePolicy` go through here.

The policies are stored in the database. After the commit, all enabled policies are written to Redis
as one JSON document, and the processes of the lattice are notified; the policies take effect within
a second.

A request to the lattice itself is recorded in the audit log before a bridge is asked, so that the
log's lock is not held while this process waits for an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from redis.client import Pipeline
from redis.exceptions import RedisError

from proto.lattice.policy import MAX_POLICIES
from proto.lattice.state import POLICIES, POLICIES_CHANGED, Verb
from relay.access.actor import Actor
from relay.access.errors import Conflict, NotFound
from relay.audit import services as audit
from relay.lattice import requests
from relay.lattice.models import POLICY_FIELDS, LatticePolicy
from relay.ops import pending
from relay.ops.redis_client import client

DEFAULT_CALL_MS: Final = 5_000
MAX_CALL_MS: Final = 30_000
TAKEN_S: Final = 2.0
"""Seconds for a bridge to take a call from the queue, added to the time-out of the call."""

_TOLD: Final = (*POLICY_FIELDS, "enabled", "note")


def put(policy: LatticePolicy, *, actor: Actor) -> None:
    """Store a policy, which replaces an existing one with its name as a whole.

    Raises:
        relay.access.errors.Denied, relay.access.errors.Away
        relay.access.errors.Invalid: a field is out of bounds.
        relay.access.errors.Conflict: there are `MAX_POLICIES` policies already.
    """
    with audit.change(actor, "lattice_policy.set", target=policy.name) as change:
        policy.full_clean(validate_unique=False)
        before = LatticePolicy.objects.filter(pk=policy.name).first()
        if before is None and LatticePolicy.objects.count() >= MAX_POLICIES:
            raise Conflict(f"there are {MAX_POLICIES:,} policies, the maximum; remove some")
        change.before = before and _told(before)
        policy.save()
        change.after = _told(policy)
        transaction.on_commit(_publish)


def remove(name: str, *, actor: Actor) -> None:
    """Remove a policy.

    Raises:
        relay.access.errors.Denied, relay.access.errors.Away
        relay.access.errors.NotFound: there is no policy with this name.
    """
    with audit.change(actor, "lattice_policy.remove", target=name) as change:
        row = LatticePolicy.objects.filter(pk=name).first()
        if row is None:
            raise NotFound(f"there is no policy {name!r}")
        change.before = _told(row)
        row.delete()
        transaction.on_commit(_publish)


def publish_all() -> None:
    """Write the enabled policies to Redis, and notify the processes.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """

    def write(pipe: Pipeline) -> None:
        rows = LatticePolicy.objects.filter(enabled=True)
        pipe.multi()
        pipe.set(POLICIES, json.dumps([row.told() for row in rows]))
        pipe.publish(POLICIES_CHANGED, b"")

    # If another process writes meanwhile, read again: it may have read a later change.
    client().transaction(write, POLICIES)


def _publish() -> None:
    try:
        publish_all()
    except RedisError:
        pending.mark(pending.Kind.LATTICE)


def _told(row: LatticePolicy) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _TOLD}


def put_link(
    actor_id: str,
    provider_id: str,
    contract_id: str,
    link_name: str,
    values: Mapping[str, str],
    *,
    actor: Actor,
) -> None:
    """Put a link through the control interface of the lattice.

    The lattice accepts the request, and lists the link some seconds later. Values may be
    secrets, so the audit log has their names only.

    Raises:
        relay.access.errors.Denied, relay.access.errors.Away
        relay.access.errors.Invalid: a key or name is malformed, or the lattice refuses it.
    """
    told = {
        "actor_id": actor_id,
        "provider_id": provider_id,
        "contract_id": contract_id,
        "link_name": link_name,
    }
    with audit.change(
        actor, "lattice.link", target=_link(actor_id, contract_id, link_name)
    ) as change:
        change.after = {**told, "values": sorted(values)}
    requests.ask(Verb.PUT_LINK, {**told, "values": dict(values)})


def remove_link(actor_id: str, contract_id: str, link_name: str, *, actor: Actor) -> None:
    """Delete a link through the control interface; a missing link is not an error.

    Raises:
        relay.access.errors.Denied, relay.access.errors.Away
        relay.access.errors.Invalid: a key or name is malformed, or the lattice refuses it.
    """
    told = {"actor_id": actor_id, "contract_id": contract_id, "link_name": link_name}
    with audit.change(
        actor, "lattice.unlink", target=_link(actor_id, contract_id, link_name)
    ) as change:
        change.before = told
    requests.ask(Verb.DEL_LINK, told)


def call(
    target: str,
    operation: str,
    data: str = "",
    link_name: str = "",
    timeout_ms: int = DEFAULT_CALL_MS,
    *,
    actor: Actor,
) -> dict[str, Any]:
    """Call an actor or a provider from the bridge.

    Args:
        target: public key or call alias.
        operation: name of the operation, as `Interface.Method`.
        data: JSON, which is sent as msgpack; empty: nothing.
        link_name: name of the link, if the target is a provider.
        timeout_ms: milliseconds to wait for the answer.
        actor: operator who makes the call.

    Returns:
        `result` as JSON text, and `took_ms`.

    Raises:
        relay.access.errors.Denied, relay.access.errors.Away
        relay.access.errors.Invalid: an argument is malformed, or the call failed.
    """
    with audit.change(actor, "lattice.call", target=f"{target} {operation}") as change:
        change.after = {"link_name": link_name, "chars": len(data)}
    asked = {
        "target": target,
        "operation": operation,
        "data": data,
        "link_name": link_name,
        "timeout_ms": timeout_ms,
    }
    answer: dict[str, Any] = requests.ask(Verb.CALL, asked, timeout_ms / 1000 + TAKEN_S)
    return answer


def _link(actor_id: str, contract_id: str, link_name: str) -> str:
    return f"{actor_id} {contract_id} {link_name}"
