"""Garbage that another program writes into the relay's Redis is skipped and harms no session."""

from __future__ import annotations

import os
import signal

import redis

from tests.support.rmb_client import session
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

GARBAGE = [b"", b"evict", b"evict x", b"released \xff", b"evict " + b"9" * 10_000, b"\xff\xfe"]


async def test_garbage_on_channels_cuts_no_subscription(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, two = fresh_twins(2)
    client = redis.Redis.from_url(server.url)

    def subscribers() -> set[str]:
        return {each["id"] for each in client.client_list(_type="pubsub")}

    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        before = subscribers()
        for channel in (f"wake:{two.id}", "relay:guests", "relay:twins"):
            for payload in GARBAGE:
                client.publish(channel, payload)
        client.xadd(f"stream:{two.id}", {"p": b"no envelope"})
        client.publish(f"wake:{two.id}", "new")
        await sender.request(receiver.key, b"all is well")
        assert (await receiver.receive()).plain == b"all is well"
        assert subscribers() == before
    assert "Traceback" not in relay.log()


async def test_garbage_in_the_directory_is_written_over(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, two = fresh_twins(2)
    client = redis.Redis.from_url(server.url)
    for entry in (b"no number", b"\xff \xff"):
        client.hset("relay:sessions", str(two.id), entry)
        async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
            await sender.request(receiver.key, b"all is well")
            assert (await receiver.receive()).plain == b"all is well"
            client.hset("relay:sessions", str(two.id), entry)
            # The holder enters itself again with the next check at the latest.
            await eventually(
                lambda entry=entry: client.hget("relay:sessions", str(two.id)) != entry,
            )
            await sender.request(receiver.key, b"still well")
            assert (await receiver.receive()).plain == b"still well"
        await eventually(lambda: not client.hexists("relay:sessions", str(two.id)))
    assert "Traceback" not in relay.log()


async def test_garbage_in_the_directory_keeps_no_dead_worker(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server)
    one, two = fresh_twins(2)
    client = redis.Redis.from_url(server.url)
    async with session(relay.url, one):
        client.hset("relay:sessions", str(two.id), b"\xff \xff")
        for pid in relay.worker_pids().values():
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not client.hexists("relay:sessions", str(one.id)))
    assert client.hget("relay:sessions", str(two.id)) == b"\xff \xff"
