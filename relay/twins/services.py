"""Changes of the registry. Everything that writes a twin goes through here.

A change is committed to the database first, then announced: its entry leaves the shared cache, the
version of the registry grows, and the running workers hear which twins are stale.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial

from django.db import transaction
from django.db.models import F
from redis.exceptions import RedisError

from relay.ops.redis_client import client
from relay.queues import keys
from relay.twins.fields import TwinValues, join_relays
from relay.twins.models import Twin

logger = logging.getLogger(__name__)

# Above this many changed twins all are made stale: one short message instead of a long one.
MAX_ANNOUNCED = 1000

ALL = "*"


def put_twin(values: TwinValues, source: str = Twin.Source.REGISTRY) -> bool:
    """Add a twin or change it.

    Returns:
        Whether it was added.
    """
    fields = {
        "account": values.account,
        "encryption_key": values.pk,
        "relays": join_relays(values.relays),
        "source": source,
    }
    with transaction.atomic():
        _, added = Twin.objects.update_or_create(
            id=values.id,
            defaults={**fields, "version": F("version") + 1},
            create_defaults={**fields, "version": 1},
        )
        announce_on_commit([values.id])
    return added


def remove_twins(ids: Sequence[int]) -> int:
    """Remove twins; those that do not exist are passed over.

    Returns:
        How many were removed.
    """
    with transaction.atomic():
        removed, _ = Twin.objects.filter(id__in=ids).delete()
        if removed:
            announce_on_commit(ids)
    return removed


def announce_on_commit(ids: Iterable[int] | None) -> None:
    """Announce a change once the transaction that made it is committed; None is all twins."""
    transaction.on_commit(partial(announce, None if ids is None else list(ids)))


def announce(ids: Sequence[int] | None) -> bool:
    """Tell the running workers that twins changed.

    In one MULTI, so that a twin fetched before the change cannot enter the shared cache after it
    (see `relay/twins/lua/fill.lua`).

    Returns:
        Whether Redis took it. If not, the database is right all the same: workers see the change
        when what they hold gets old, or when the relay starts, which announces everything.
    """
    if ids is not None and not ids:
        return True
    named = [] if ids is None or len(ids) > MAX_ANNOUNCED else [str(twin) for twin in ids]
    try:
        with client().pipeline(transaction=True) as pipe:
            if named:
                pipe.hdel(keys.TWINS, *named)
            else:
                pipe.unlink(keys.TWINS)
            pipe.incr(keys.TWINS_VERSION)
            pipe.publish(keys.TWINS_CHANNEL, ",".join(named) or ALL)
            pipe.execute()
    except RedisError as error:
        logger.error("twins changed, but the workers could not be told: %s", error)
        return False
    return True
