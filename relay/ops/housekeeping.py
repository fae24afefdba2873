"""Work that one process of the installation, whichever it is, has to do once a minute.

Every worker calls `run_due` from its history thread; a lock in Redis admits one of them.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime
from typing import Final

from django.conf import settings
from django.db import Error as DatabaseError
from redis import Redis
from redis.exceptions import RedisError

from relay.access.errors import Away
from relay.ops import pending
from relay.ops.redis_client import client, number, text
from relay.ops.workers import list_workers
from relay.queues import keys

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 60.0
_LOCK: Final = "relay:housekeeping"
_LOCK_S: Final = 50
_SUSPECTS: Final = "relay:housekeeping:suspects"
_SUSPECTS_S: Final = 600


def run_due() -> bool:
    """Do the minute's work unless another process has done it.

    Returns:
        Whether this process did it.
    """
    try:
        connection = client()
        if not connection.set(_LOCK, "1", nx=True, ex=_LOCK_S):
            return False
        if not connection.exists(keys.CONTROL):
            pending.mark_all()  # Redis lost it
        # Services load the audit log: a worker that never does the minute's work does not need it.
        from relay.limits import services as limits
        from relay.sessions import services as sessions
        from relay.trace import services as traces

        with_rows = sessions.workers_with_open_rows()
        seen = _last_signs_of_life(connection, with_rows)
        lost = sum(
            sessions.mark_worker_lost(boot_id, seen.get(boot_id))
            for boot_id in _dead_workers(connection, with_rows)
        )
        lifted = limits.lift_expired_bans()
        traces.tidy()
        sessions.prune(settings.RMB.sessions.keep_closed_days)
    except (RedisError, DatabaseError, Away, OSError) as error:
        logger.warning("housekeeping put off: %s", error)
        return False
    if lost or lifted:
        logger.info("housekeeping: %d sessions of lost workers, %d bans over", lost, lifted)
    return True


def _dead_workers(connection: Redis, with_rows: set[str]) -> set[str]:
    """Return workers with open rows that had no heartbeat now and none a minute ago.

    A single check is not enough: when Redis returns from an outage longer than the lifetime of
    heartbeats, all workers look dead for a second.
    """
    alive = {worker.boot_id for worker in list_workers(connection)}
    suspects = with_rows - alive
    before = {text(member) for member in connection.smembers(_SUSPECTS)}
    with connection.pipeline(transaction=True) as pipe:
        pipe.delete(_SUSPECTS)
        if suspects:
            pipe.sadd(_SUSPECTS, *suspects)
            pipe.expire(_SUSPECTS, _SUSPECTS_S)
        pipe.execute()
    return suspects & before


def _last_signs_of_life(connection: Redis, with_rows: set[str]) -> dict[str, datetime]:
    """Return the last heartbeat of each worker; forget workers without open rows and heartbeat.

    If all workers look dead for a second, their next heartbeat records them again.
    """
    seen = {
        text(boot_id): number(stored)
        for boot_id, stored in connection.hgetall(keys.WORKERS_SEEN).items()
    }
    gone = seen.keys() - with_rows - {worker.boot_id for worker in list_workers(connection)}
    if gone:
        connection.hdel(keys.WORKERS_SEEN, *gone)
    now = time.time()
    return {
        boot_id: datetime.fromtimestamp(min(at, now), UTC) for boot_id, at in seen.items() if at > 0
    }
