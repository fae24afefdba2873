"""Celery tasks for the chain, around plain functions."""

from __future__ import annotations

from celery import shared_task
from redis.exceptions import RedisError

from relay.ops import background
from relay.ops.redis_client import client
from relay.twins import chain_follow, chain_import, chain_state


@shared_task(name=chain_follow.TASK)  # type: ignore[untyped-decorator]
def follow() -> None:
    """Follow the chain, unless another process does."""
    chain_follow.follow()


@shared_task(name=chain_import.TASK)  # type: ignore[untyped-decorator]
def import_twins() -> None:
    """Import all twins, or continue an import, unless another process does."""
    chain_import.import_twins()


@shared_task(name="chain.watch")  # type: ignore[untyped-decorator]
def watch() -> None:
    """Start tasks that should run and do not; the schedule calls this every few seconds."""
    try:
        following, imported = chain_state.read(client())
    except RedisError:
        return  # the broker, which starts tasks, is unavailable as well
    if not following.leased:
        background.start(chain_follow.TASK)
    if imported.needed and not imported.leased:
        background.start(chain_import.TASK)
