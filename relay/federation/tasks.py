"""The Celery tasks of federation, implemented in `drainer.py` and `watch.py`."""

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
    """Deliver the messages of one shard of the outbox, for a minute if a successor can be started.

    Tasks are queued in Redis. If Redis is out of memory it accepts none, and it may be the outbox
    that fills it: then this task continues.
    """
    try:
        while drainer.drain(shard):
            if background.start("federation.deliver", shard) or background.stopping.is_set():
                return
    except (LinkLost, hiredis.ReplyError) as error:
        logger.warning("federation shard %d: %s; the schedule starts it again", shard, error)


@shared_task(name="federation.watch")  # type: ignore[untyped-decorator]
def watch() -> None:
    """Start drainers that are missing, and remove what is too old."""
    watching.watch()
