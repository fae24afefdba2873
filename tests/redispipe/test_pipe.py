"""`redispipe.pipe` on the loop that workers run on: what is asked of a connection that ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from redispipe import resp
from redispipe.address import RedisAddress
from redispipe.pipe import LinkLost, RedisPipe
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
        pipe = _pipe(valkey, usable)
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


@pytest.mark.parametrize("at_once", [False, True])
def test_pieces_are_written_in_the_order_of_the_requests(
    valkey: RedisServer, at_once: bool
) -> None:
    """Large commands are not copied into one piece with those before and after them."""
    values = [bytes([65 + number]) * 300_000 for number in range(4)]
    head = b"*2\r\n$4\r\nECHO\r\n$300000\r\n"

    async def main() -> None:
        usable = asyncio.Event()
        pipe = _pipe(valkey, usable)
        pipe.start()
        await usable.wait()
        replies: asyncio.Queue[Any] = asyncio.Queue()
        for value in values:
            pipe.submit(resp.command("PING"), replies.put_nowait)
            pipe.submit([head, value, resp.CRLF], replies.put_nowait, at_once=at_once)
        pipe.submit(resp.command("PING"), replies.put_nowait)
        for value in values:
            assert await replies.get() == b"PONG"
            assert await replies.get() == value
        assert await replies.get() == b"PONG"
        await pipe.close()

    uvloop.run(main())


def _pipe(server: RedisServer, usable: asyncio.Event) -> RedisPipe:
    return RedisPipe(
        RedisAddress.parse(server.url).connect,
        [],
        on_up=lambda: asyncio.sleep(0),
        on_usable=usable.set,
        on_down=lambda: None,
    )
