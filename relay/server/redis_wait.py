"""Wait for a Redis server that does not answer while a relay starts."""

from __future__ import annotations

import contextlib
import socket

import hiredis

from redispipe.pipe import RedisPipe
from relay.queues import keys


async def wait_for_redis(url: str) -> None:
    """Return when Redis answers; retry for ever, without logging.

    Also record that everything that needs Redis starts only now (`relay.ops.starting`).
    """

    async def answers() -> None:
        await pipe.call("EXISTS", keys.STARTING)  # refused while it loads its data
        with contextlib.suppress(hiredis.ReplyError):
            await pipe.call("SET", keys.STARTING, socket.gethostname(), "EX", keys.STARTING_S)

    pipe = RedisPipe.to(url, "start", on_up=answers, quiet=True)
    pipe.start()
    try:
        await pipe.wait_usable()
    finally:
        await pipe.close()
