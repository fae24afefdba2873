"""The feed of frames that all sockets of one process share."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from channels.layers import get_channel_layer

from relay.dashboard import feed as feeding
from relay.dashboard.feed import Feed
from relay.dashboard.live import MAX_PER_ACCOUNT, MAX_SOCKETS, TOO_MANY, Sockets
from relay.history.frames import GROUP, LAYER, MESSAGE
from tests.support.redis_servers import RedisServer

WITHIN_S = 60.0


async def send(text: str) -> None:
    await get_channel_layer(LAYER).group_send(GROUP, {"type": MESSAGE, "text": text})


def members(redis: RedisServer) -> int:
    return sum(redis.run("ZCARD", name) for name in redis.run("KEYS", f"*group*{GROUP}*"))


async def until(redis: RedisServer, count: int) -> None:
    async with asyncio.timeout(WITHIN_S):
        while members(redis) != count:
            await asyncio.sleep(0.01)


async def test_one_subscription_for_all_and_none_without(site_redis: RedisServer) -> None:
    feed = Feed()
    with feed.listening() as first, feed.listening() as second:
        await until(site_redis, 1)
        await send("a")
        async with asyncio.timeout(WITHIN_S):
            assert (await feed.next(first)).text == (await feed.next(second)).text == "a"
        # A new listener gets the newest frame at once.
        with feed.listening() as third:
            assert (await asyncio.wait_for(feed.next(third), 1)).text == "a"
    await until(site_redis, 0)


async def test_who_is_late_gets_the_newest(site_redis: RedisServer) -> None:
    feed = Feed()
    with feed.listening() as number:
        late = number
        await until(site_redis, 1)
        for text in ("a", "b", "c"):
            await send(text)
            async with asyncio.timeout(WITHIN_S):
                number, found = await feed.next(number)
            assert found == text
        late, found = await feed.next(late)
        assert (late, found) == (number, "c")
        waiting = asyncio.create_task(feed.next(late))
        await send("d")
        assert (await asyncio.wait_for(waiting, WITHIN_S)).text == "d"


async def test_the_group_may_forget_this_process(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed renews its membership, here after Redis lost it as in a restart without a file."""
    monkeypatch.setattr(feeding, "RENEW_S", 0.2)
    feed = Feed()
    with feed.listening() as number:
        await until(site_redis, 1)
        site_redis.run("FLUSHALL")
        await until(site_redis, 1)
        await send("a")
        assert (await asyncio.wait_for(feed.next(number), WITHIN_S)).text == "a"


def test_sockets_are_counted_and_bounded() -> None:
    sockets = Sockets()
    with contextlib.ExitStack() as stack:
        given = [stack.enter_context(sockets.one_more()) for _ in range(MAX_SOCKETS + 1)]
        assert given == [True] * MAX_SOCKETS + [False]
        given = [stack.enter_context(sockets.of_account(7)) for _ in range(MAX_PER_ACCOUNT + 1)]
        assert given == [True] * MAX_PER_ACCOUNT + [False]
        assert stack.enter_context(sockets.of_account(8))
        sockets.ended[TOO_MANY] += 1
        assert sockets.figures() == {
            "relay_console_sockets": MAX_SOCKETS + 1,
            'relay_console_sockets_ended_total{code="4429"}': 1,
        }
    assert sockets.open == 0 and not sockets.accounts
