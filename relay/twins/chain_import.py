"""The import of all twins of the chain into the mirror, in pages, resumable.

After each page its last key is stored in Redis, so that an import that was killed continues there.
If the follower flushes meanwhile, imported twins may be old, and the import begins again. It does
not use nodes that are behind the block of the flush, as they do not have the missed changes either.
At the end, twins that the mirror has marked stale since before the import began are deleted: the
chain does not have them any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from redis import Redis

from chain.client import Page
from chain.errors import ChainAwayError, shortened
from chain.rotation import Rotation
from relay.ops import background
from relay.ops.lease import Lease
from relay.ops.redis_client import client
from relay.queues import keys
from relay.twins import chain_state, mirror
from relay.twins.chain_state import Import

logger = logging.getLogger(__name__)

TASK = "chain.import_twins"

Told = Callable[[Import], None]


def want() -> None:
    """Request an import of all twins, even if no change is known to be missed.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    client().hincrby(keys.CHAIN_IMPORT, "wanted", 1)


def import_twins(told: Told = lambda _: None) -> bool:
    """Import all twins, or continue an import.

    Args:
        told: function called after each page.

    Returns:
        Whether it was completed; False if another process imports, the chain is unavailable, or
        the worker stops.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
        django.db.Error: the database does not accept it.
    """
    redis = client()
    lease = Lease(redis, keys.CHAIN_IMPORT_LEASE)
    if not lease.take():
        return False
    lease.keep(lambda: None)
    rotation = Rotation(settings.RMB.substrate.urls)
    try:
        return _import(redis, rotation, lease, told)
    except ChainAwayError as error:
        text = shortened(str(error))
        if _state(redis).error != text:
            logger.warning("the import of twins waits for the chain: %s", text)
        _note(redis, {"error": text})
        return False
    finally:
        rotation.close()
        lease.release()


def _import(redis: Redis, rotation: Rotation, lease: Lease, told: Told) -> bool:
    state = _state(redis)
    rotation.floor = chain_state.read(redis).following.flushed
    if not (state.running and state.number == state.wanted):
        state = _begin(redis, rotation, state.wanted)
    while True:
        key = state.next_key or None
        page = next(rotation.pages(key), None)
        if background.stopping.is_set() or not lease.held:
            return False
        if page is None:
            break
        mirror.keep_read(page.twins, page.head.height)
        state = _advance(redis, state, page)
        told(state)
        if state.number != state.wanted:
            logger.info("the import of twins begins again: changes may have been missed")
            rotation.floor = chain_state.read(redis).following.flushed
            state = _begin(redis, rotation, state.wanted)
    dropped = mirror.drop_unseen(state.height) if state.height else 0
    _note(redis, {"state": "done", "ended": f"{time.time():.3f}", "error": ""})
    logger.info("%d twins imported from the chain, %d are no more", state.twins, dropped)
    return True


def _begin(redis: Redis, rotation: Rotation, number: int) -> Import:
    fields = {
        **{"number": number, "state": "running", "next_key": "", "height": 0, "twins": 0},
        **{"newest_id": rotation.last_twin_id(), "began": f"{time.time():.3f}"},
        **{"ended": 0, "error": ""},
    }
    _note(redis, fields)
    return _state(redis)


def _advance(redis: Redis, state: Import, page: Page) -> Import:
    _note(
        redis,
        {
            "next_key": page.next_key.hex(),
            "height": state.height or page.head.height,
            "twins": state.twins + len(page.twins),
            "error": "",
        },
    )
    return _state(redis)


def _state(redis: Redis) -> Import:
    return chain_state.read(redis).imported


def _note(redis: Redis, fields: Mapping[Any, Any]) -> None:
    redis.hset(keys.CHAIN_IMPORT, mapping=fields)
