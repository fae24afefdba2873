"""Events of a trace for a reader that stays: it waits in Redis, and the database rests meanwhile.

A wait lasts as long as Redis may block. In between Redis is asked whether the order is still in
force; only when it is not, or its time is over, does anybody look at the record.
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
"""For what was noted in the last moments of a trace, and is on its way."""


async def follow(order_id: str, until: datetime, after: str) -> AsyncGenerator[list[Noted], None]:
    """Events as they come, until the trace is over.

    Args:
        order_id: of an order that exists.
        until: when it ends by itself.
        after: a cursor.

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
                if not over:  # others say that it ends, and the record does not yet
                    await asyncio.sleep(BLOCK_S)


def _over(order_id: str) -> bool:
    return services.look([services.find(order_id)])[0].state is not State.RUNNING
