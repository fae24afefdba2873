"""Events of a trace for a reader that stays connected. It waits in Redis, not in the database.

Each wait lasts at most as long as Redis may block. Between two waits, Redis is asked whether the
order is still in force; only if it is not, or its time is over, the database is read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any, Final

from channels.db import database_sync_to_async
from django.conf import settings

from relay.ops.redis_client import open_async, text
from relay.queues import keys
from relay.trace import services
from relay.trace.bounds import FLUSH_S, MAX_PAGE
from relay.trace.following import FIELD_PREFIX
from relay.trace.services import BLOCK_S, Noted, State

BLOCK_MS: Final = int(BLOCK_S * 1000)
LAST_MS: Final = int(3 * FLUSH_S * 1000)
"""Milliseconds to wait for the last events of a trace, which may not have reached Redis yet."""


async def follow(order_id: str, until: datetime, after: str) -> AsyncGenerator[list[Noted], None]:
    """Yield events as they arrive, until the trace is over.

    Args:
        order_id: id of an order that exists.
        until: time at which it ends by itself.
        after: cursor after which to begin.

    Raises:
        NotFound: the order was removed.
        Away: Redis does not answer.
    """
    name, ends = keys.trace(order_id), until.timestamp()
    redis = open_async(settings.RMB.redis.url)
    field, over = f"{FIELD_PREFIX}{order_id}", False
    async with redis:
        while True:
            with services.told():
                there = await redis.hexists(keys.CONTROL, field) and time.time() < ends
                wait_ms = BLOCK_MS if there else LAST_MS
                reply: Any = await redis.xread({name: after}, count=MAX_PAGE, block=wait_ms)
            if reply:
                entries = reply[0][1]
                after = text(entries[-1][0])
                yield list(services.read(order_id, entries))
            elif over:
                return
            elif not there:
                over = await database_sync_to_async(_over)(order_id)
                if not over:  # Redis has no such order any more, but the database does
                    await asyncio.sleep(BLOCK_S)


def _over(order_id: str) -> bool:
    return services.look([services.find(order_id)])[0].state is not State.RUNNING
