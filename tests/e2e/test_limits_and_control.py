"""Limits over all sessions and workers of a twin; bans, kicks and limits within a second."""

from __future__ import annotations

import asyncio
import time

from tests.support.raw_http import upgrade
from tests.support.relay_process import RelayProcess, directory, heartbeats, published, run_command
from tests.support.rmb_client import RmbClient, connect, session
from tests.support.waiting import eventually, fresh_window
from tests.support.world import fresh_twins

LIVE_WITHIN_S = 1.5  # a second, and the noise of a busy machine
LIMIT_TEXT = "exceeded rate limits, dropping message"


def _control(relay: RelayProcess, field: str, value: str | None) -> None:
    """Write control state as the operator's services do, without their notification of workers."""
    assert relay.redis is not None
    if value is None:
        relay.redis.run("HDEL", "relay:control", field)
    else:
        relay.redis.run("HSET", "relay:control", field, value)
    relay.redis.run("HINCRBY", "relay:control", "version", 1)


async def _refusals(client: RmbClient) -> int:
    """Return the number of refusals so far.

    A websocket ping serves as the barrier: an envelope's would be limited too.
    """
    await asyncio.wait_for(await client.websocket.ping(), 5)
    texts = [(await client.receive()).error.message for _ in range(client.inbox.qsize())]
    assert set(texts) <= {LIMIT_TEXT}
    return len(texts)


async def test_a_limit_is_shared_by_sessions_and_workers(start_server, start_relay) -> None:
    server = start_server(append_fsync="no")
    settings = {"limits.count": "50", "limits.size": "1000000"}
    relays = [start_relay(server, settings=settings) for _ in range(2)]
    one, other, receiver = fresh_twins(3)
    await fresh_window(10)
    async with (
        session(relays[0].url, one, "a") as first,
        session(relays[0].url, one, "b") as second,
        session(relays[1].url, one, "c") as third,
    ):
        refused = 0
        for turn in range(1, 41):
            for client in (first, second, third):
                await client.request((receiver.id, None), b"counted")
                refused += await _refusals(client)
            # Workers learn each other's counts from the replies to their batches.
            stored = 3 * turn - refused
            await eventually(
                lambda stored=stored: server.run("XLEN", f"stream:{receiver.id}") == stored,
                what=f"what was let through in turn {turn} to be stored",
            )
        # Messages between two batches are accepted in addition: two separate limits would store
        # 100.
        assert 50 <= stored <= 60
    async with session(relays[1].url, other) as another:
        await another.request((receiver.id, None), b"own window")
        assert await _refusals(another) == 0
    await eventually(
        lambda: published(relays[0], 'relay_messages_total{reason="limit_count"}') == refused,
        what="the refusals of both workers to be counted",
    )


async def test_one_large_message_is_refused_without_counting(start_relay) -> None:
    relay = start_relay(settings={"limits.count": "5", "limits.size": "10000"})
    one, two = fresh_twins(2)
    await fresh_window(10)
    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        for _ in range(20):
            await sender.request(receiver.key, bytes(10_001))
        answers = await sender.receive_many(20)
        assert {answer.error.message for answer in answers} == {LIMIT_TEXT}
        await sender.request(receiver.key, b"small")
        assert (await receiver.receive()).plain == b"small"
    await eventually(lambda: relay.counted("relay_messages_total", reason="limit_size") == 20)


async def test_limits_of_one_twin_are_live_within_a_second(relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with session(relay.url, one) as sender, session(relay.url, two) as receiver:
        await sender.request(receiver.key, b"free")
        await receiver.receive()
        _control(relay, f"limit:{one.id}", "1 1000000")

        async def limited() -> bool:
            await sender.request(receiver.key, b"again")
            await asyncio.sleep(0.05)
            return not sender.inbox.empty()

        await eventually(limited, timeout_s=LIVE_WITHIN_S)
        assert (await sender.receive()).error.message == LIMIT_TEXT
        _control(relay, f"limit:{one.id}", "0 0")

        async def free() -> bool:
            while not sender.inbox.empty():
                await sender.receive()
            await sender.request(receiver.key, b"free again")
            await asyncio.sleep(0.05)
            return sender.inbox.empty()

        await eventually(free, timeout_s=LIVE_WITHIN_S)
        _control(relay, f"limit:{one.id}", None)


async def test_a_ban_is_live_within_a_second(relay_pair: RelayProcess) -> None:
    one, two = fresh_twins(2)
    sessions = [await connect(relay_pair.url, one, f"s{number}") for number in range(6)]
    async with session(relay_pair.url, two) as bystander:
        _control(relay_pair, f"ban:{one.id}", "testing")
        start = time.monotonic()
        for banned in sessions:
            code, text = await banned.closed(LIVE_WITHIN_S + 3)
            assert (code, text) == (4004, "banned")
        assert time.monotonic() - start < LIVE_WITHIN_S

        async def refused() -> bool:
            answers = [await upgrade(relay_pair.port, f"/?{one.token()}") for _ in range(8)]
            return {answer.status for answer in answers} == {403}

        async def is_told() -> bool:
            await bystander.request((one.id, None), b"to a banned twin")
            await bystander.barrier()
            return not bystander.inbox.empty()

        # Whichever worker answers: one of them may hold none of the sessions.
        await eventually(refused, timeout_s=LIVE_WITHIN_S)
        await eventually(is_told, timeout_s=LIVE_WITHIN_S)
        assert (await bystander.receive()).error.message == "twin is banned"
        _control(relay_pair, f"ban:{one.id}", None)

        async def lifted() -> bool:
            return (await upgrade(relay_pair.port, f"/?{one.token()}")).status == 101

        await eventually(lifted, timeout_s=LIVE_WITHIN_S)
        await bystander.barrier()


async def test_a_kick_is_live_within_a_second_and_hits_one_session(
    relay_pair: RelayProcess,
) -> None:
    (one,) = fresh_twins(1)
    kicked = await connect(relay_pair.url, one, "kicked")
    async with session(relay_pair.url, one, "left alone") as other:
        name = f"{one.id}:kicked"
        await eventually(lambda: name in directory(relay_pair.redis))
        epoch, _ = directory(relay_pair.redis)[name]
        _control(relay_pair, f"kick:{name}", f"{epoch}|testing")
        start = time.monotonic()
        assert (await kicked.closed(LIVE_WITHIN_S + 3))[0] == 4003
        assert time.monotonic() - start < LIVE_WITHIN_S
        # The kick names an epoch: a session that signs in afterwards is not affected.
        async with session(relay_pair.url, one, "kicked") as back:
            await heartbeats(relay_pair, 2)  # workers have compared the state
            await back.barrier()
            await other.barrier()


async def test_sessions_of_a_removed_twin_end_within_a_second(relay_pair: RelayProcess) -> None:
    removed, stays = fresh_twins(2)
    sessions = [await connect(relay_pair.url, removed, f"s{number}") for number in range(6)]
    async with session(relay_pair.url, stays) as bystander:
        done = await asyncio.to_thread(
            run_command,
            relay_pair.folder,
            *("rmb_twin", "remove", str(removed.id)),
            settings=relay_pair.settings,
        )
        ended_by = time.monotonic() + LIVE_WITHIN_S
        assert done.returncode == 0, done.stderr
        for ended in sessions:
            assert await ended.closed(LIVE_WITHIN_S + 3) == (4006, "twin_changed")
        assert time.monotonic() < ended_by
        assert (await upgrade(relay_pair.port, f"/?{removed.token()}")).status == 401
        await bystander.barrier()
