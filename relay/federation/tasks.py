"""The Celery tasks of federation. What they do is in `drainer.py` and `watch.py`."""

from __future__ import annotations

import logging

import hiredis
from celery import shared_task

from redispipe.errors import LinkLost
from relay.federation import watch as watching
from relay.federation.drainer import drainer
from relay.ops import background

logger = logging.getLogger(__name__)


@shared_task(name="federation.deliver")  # type: ignore[untyped-decorator]
def deliver(shard: int) -> None:
    """Delivers what is in one shard of the outbox, for a minute if it can have a successor.

    Tasks are handed over through Redis. When that is out of memory it takes none, and it may be the
    outbox that fills it: then this one goes on.
    """
    try:
        while drainer.drain(shard):
            if background.start("federation.deliver", shard) or background.stopping.is_set():
                return
    except (LinkLost, hiredis.ReplyError) as error:
        logger.warning("federation shard %d: %s; the schedule starts it again", shard, error)


@shared_task(name="federation.watch")  # type: ignore[untyped-decorator]
def watch() -> None:
    """Starts what has to run and does not, and removes what is too old."""
    watching.watch()
