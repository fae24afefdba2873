"""The sweep's handling of what queues are charged for (`relay.queues.charging`)."""

from __future__ import annotations

import asyncio
import heapq
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from redispipe import resp
from relay.queues import charging, keys
from relay.queues.charging import FIELDS, Held

if TYPE_CHECKING:
    from relay.sessions.worker import Worker

SCANNED: Final = 500
"""Keys examined by one command."""
FULL_PERCENT: Final = 50
"""Percentage of a bound from which a twin is listed as nearly full."""
FULLEST: Final = 50
"""Maximum number of twins listed, the fullest first."""


async def give_back(worker: Worker) -> None:
    """Give back what was charged for messages that left their queues without being read.

    Their sources are not known. The counts are scanned instead of the queues, as they may exist
    without a queue.
    """
    life_s = 2 * worker.commit.policy.retention_s
    async for names in _scan(worker, keys.share("")):
        texts = [name.removeprefix(keys.share("").encode()) for name in names]
        await worker.request(charging.command("settle", life_s, texts))


async def name_fullest(worker: Worker, life_s: int) -> None:
    """Publish the twins that are close to a bound, for `life_s` seconds."""
    fullest: list[tuple[float, str, Held]] = []
    for prefix in (keys.SENT, keys.RECEIVED):
        async for names in _scan(worker, prefix):
            asked = (worker.request(resp.command("HMGET", name, *FIELDS)) for name in names)
            for name, counts in zip(names, await asyncio.gather(*asked), strict=True):
                held = Held.parse(counts)
                text = name.decode(errors="replace")
                percent = worker.room.filled_percent(text, held)
                if percent >= FULL_PERCENT:
                    fullest = heapq.nlargest(FULLEST, [*fullest, (percent, text, held)])
    told = json.dumps(fullest)
    await worker.request(resp.command("SET", keys.FULLEST_TWINS, told, "EX", life_s))


async def _scan(worker: Worker, prefix: str) -> AsyncIterator[list[bytes]]:
    cursor: Any = b"0"
    while True:
        cursor, names = await worker.request(
            resp.command("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", SCANNED)
        )
        if names:
            yield names
        if cursor == b"0":
            return
