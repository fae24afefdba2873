"""The drain of one shard of the outbox, from taking its lease to releasing it.

`shard.py` handles the messages meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from relay.federation.sender import Sender
    from relay.federation.shard import Shard

log = logging.getLogger(__name__)

LIFE_S: Final = 60.0
"""Longest life of a drainer, in seconds. Its successor starts with fresh state."""
IDLE_S: Final = 10.0
"""Seconds without messages after which a drainer ends early."""
LOOK_S: Final = 0.25
"""Seconds between two checks whether the drainer has to end."""
SETTLED_S: Final = 5.0
"""Seconds beyond the request time-out in which the last messages are settled; the rest is left to
the successor."""


async def drain(sender: Sender, shard: Shard) -> bool:
    """Deliver the messages of a shard for a while.

    Returns:
        Whether there are messages left for a successor.

    Raises:
        LinkLost: Redis went away at the start or at the end.
    """
    if not sender.stopping():
        if not await shard.lease.take():
            return False
        sender.reader.add(shard)
        try:
            started = time.monotonic()
            while not (sender.stopping() or _has_ended(shard, started)):
                await asyncio.sleep(LOOK_S)
        finally:
            await _leave(sender, shard)
    return bool(await sender.pipe.call("XLEN", shard.stream))


def _has_ended(shard: Shard, started: float) -> bool:
    if not shard.lease.held or time.monotonic() - started >= LIFE_S:
        return True
    return shard.idle_s() >= IDLE_S


async def _leave(sender: Sender, shard: Shard) -> None:
    shard.begin_to_leave()
    sender.reader.remove(shard)
    number = shard.number
    try:
        async with asyncio.timeout(sender.options.timeout_s + SETTLED_S):
            while shard.sending:
                shard.answered.clear()
                await shard.answered.wait()
            await sender.settler.quiet(number)
    except TimeoutError:
        log.warning("federation shard %d: not everything was settled in time", number)
    doubtful = shard.doubtful()
    if shard.sending or sender.settler.waiting(number) or not shard.lease.held:
        shard.lease.abandon()
    else:
        await shard.lease.release(doubtful, shard.read_up_to)
