"""`relay.queues.pipe` on the loop that workers run on: what is asked of a connection that ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from relay.queues import resp
from relay.queues.address import RedisAddress
from relay.queues.pipe import LinkLost, RedisPipe
from tests.support.redis_servers import RedisServer


@pytest.mark.parametrize("at_once", [False, True])
def test_a_request_on_a_connection_that_is_closing_is_lost(
    valkey: RedisServer, at_once: bool
) -> None:
    """A turn's requests are written at its end, when the connection may be over already."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        failures: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda loop, context: failures.append(context))
        usable = asyncio.Event()
        pipe = RedisPipe(
            RedisAddress.parse(valkey.url).connect,
            [],
            on_up=lambda: asyncio.sleep(0),
            on_usable=usable.set,
            on_down=lambda: None,
        )
        pipe.start()
        await usable.wait()
        usable.clear()
        pipe.drop()
        replies: asyncio.Queue[Any] = asyncio.Queue()
        pipe.submit(resp.command("PING"), replies.put_nowait, at_once=at_once)
        assert isinstance(await replies.get(), LinkLost)
        await usable.wait()
        assert await pipe.call("PING") == b"PONG"
        await pipe.close()
        assert failures == []

    uvloop.run(main())
