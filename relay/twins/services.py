"""Changes of the registry. Everything except an import of a file (`csv_io`) changes twins here.

A change is committed to the database first, then announced: its entry is removed from the shared
cache, the version of the registry grows, and the running workers are notified which twins are
stale.

If `twins.source` is tfchain, nothing is written here, as the table mirrors the chain; only rows
that remain from a registry may be removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F
from redis.exceptions import RedisError

from redispipe import scripts
from relay.access.actor import Actor
from relay.access.errors import Conflict
from relay.audit import services as audit
from relay.ops import pending
from relay.ops.redis_client import client
from relay.queues import keys
from relay.twins.fields import TwinValues, join_relays
from relay.twins.models import Twin

# Above this number of changed twins, all are made stale: one short message instead of a long one.
MAX_ANNOUNCED = 1000

ANNOUNCE_SCRIPT = scripts.source(Path(__file__).with_name("lua"), "announce")


def in_registry() -> bool:
    """Check whether twins come from this relay's registry, and not from the chain."""
    return bool(settings.RMB.twins.source == "registry")


def removable(source: str) -> bool:
    """Check whether a row may be removed here: any, except the chain's if it is the source."""
    return in_registry() or source != Twin.Source.CHAIN


def of_chain() -> Conflict:
    """Return the error for changes of twins that come from the chain."""
    return Conflict("twins come from the chain (twins.source = tfchain) and are changed there")


def put_twin(values: TwinValues, *, actor: Actor) -> bool:
    """Add a twin to the registry or change it.

    Returns:
        Whether it was added.

    Raises:
        relay.access.errors.Conflict: twins come from the chain.
        relay.access.errors.Away: the database does not answer.
    """
    with audit.change(actor, "twin.put", target=values.id) as change:
        if not in_registry():
            raise of_chain()
        fields: dict[str, Any] = {
            "account": values.account,
            "encryption_key": values.pk,
            "relays": join_relays(values.relays),
            "source": Twin.Source.REGISTRY,
            "height": None,
            "stale_since": None,
        }
        change.before = _told(values.id)
        _, added = Twin.objects.update_or_create(
            id=values.id,
            defaults={**fields, "version": F("version") + 1},
            create_defaults={**fields, "version": 1},
        )
        change.after = _told(values.id)
        # Notifying the workers again does no harm; an audit record without a change would be wrong.
        change.happened = change.before != change.after
        announce_on_commit([values.id])
    return added


def remove_twins(ids: Sequence[int], *, actor: Actor) -> int:
    """Remove twins; those that do not exist are skipped.

    Returns:
        Number of twins removed.

    Raises:
        relay.access.errors.Conflict: one of them is a twin of the chain; none was removed.
        relay.access.errors.Away: the database does not answer.
    """
    removed = 0
    with transaction.atomic():
        for twin in ids:
            with audit.change(actor, "twin.remove", target=twin) as change:
                change.before = _told(twin)
                if change.before and not removable(change.before["source"]):
                    raise of_chain()
                change.happened = bool(Twin.objects.filter(id=twin).delete()[0])
            removed += change.happened
        if removed:
            announce_on_commit(ids)
    return removed


def announce_on_commit(ids: Iterable[int] | None) -> None:
    """Announce a change as soon as its transaction is committed; None is all twins."""
    transaction.on_commit(partial(announce, None if ids is None else list(ids)))


def announce(ids: Sequence[int] | None) -> bool:
    """Notify the running workers that twins changed; None is all of them.

    Returns:
        Whether Redis accepted it. If not, the change is marked as pending.
    """
    if ids is not None and not ids:
        return True
    try:
        _tell_workers([] if ids is None or len(ids) > MAX_ANNOUNCED else ids)
    except RedisError:
        pending.mark(pending.Kind.TWINS)
        return False
    return True


def publish_all() -> None:
    """Make all twins stale, as when the relay starts.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    _tell_workers([])


def _tell_workers(ids: Sequence[int]) -> None:
    """Announce changed twins; no id means all of them.

    This is one script (`relay/twins/lua/announce.lua`), so that a twin fetched before the change
    cannot enter the shared cache after it (see `relay/twins/lua/fill.lua`).
    """
    named = [str(twin) for twin in ids]
    client().eval(ANNOUNCE_SCRIPT, 2, keys.TWINS, keys.TWINS_VERSION, keys.TWINS_CHANNEL, *named)


def _told(twin: int) -> dict[str, Any] | None:
    """Return a twin's row for the audit log."""
    row = Twin.objects.filter(id=twin).first()
    if row is None:
        return None
    key = bytes(row.encryption_key) if row.encryption_key else None
    return {
        "account": row.address,
        "pk": f"0x{key.hex()}" if key else None,
        "relays": row.relays,
        "source": row.source,
    }
