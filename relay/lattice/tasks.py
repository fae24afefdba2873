"""The Celery task of the lattice, which calls `following`."""

from __future__ import annotations

import logging

from celery import shared_task
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.lattice import following

logger = logging.getLogger(__name__)


@shared_task(name="lattice.follow")  # type: ignore[untyped-decorator]
def follow() -> None:
    """Write findings of the monitor to the audit log."""
    try:
        following.follow()
    except (RedisError, DatabaseError, Away) as error:
        logger.error("findings of the lattice do not reach the audit log: %s", error)
