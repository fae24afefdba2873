"""Where a message goes: sessions of other workers, guests, partner relays, fail-fast."""

from __future__ import annotations

import asyncio

from tests.support import envelopes
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess, heartbeats
from tests.support.rmb_client import connect, session
from tests.support.waiting import eventually
from tests.support.world import BOTH_TWIN, ELSEWHERE_TWIN, fresh_twins


def _handed_on(server: RedisServer) -> int:
    """Return the number of entries in the outgoing streams of federation."""
    with_entries: list[bytes] = server.run("KEYS", "federation:out:*")
    return sum(server.run("XLEN", key) for key in with_entries)


async def test_between_two_workers_both_ways(start_server, start_relay) -> None:
    server = start_server(append_fsync="no")
    relays = [start_relay(server), start_relay(server)]
    one, two = fresh_twins(2)
    async with session(relays[0].url, one) as here, session(relays[1].url, two) as there:
        for number in range(200):
            await here.request(there.key, b"%d" % number)
            await there.request(here.key, b"%d" % number)
        for client in (here, there):
            got = [envelope.plain for envelope in await client.receive_many(200)]
            assert got == [b"%d" % number for number in range(200)]
        await eventually(lambda: server.run("XLEN", f"stream:{one.id}") == 0)
        await eventually(lambda: server.run("XLEN", f"stream:{two.id}") == 0)


async def test_fail_fast_finds_sessions_of_other_workers(start_server, start_relay) -> None:
    server = start_server(append_fsync="no")
    relays = [start_relay(server), start_relay(server)]
    one, two, absent = fresh_twins(3)
    async with session(relays[0].url, one) as here, session(relays[1].url, two) as there:
        await there.barrier()
        await eventually(lambda: server.run("HEXISTS", "relay:sessions", str(two.id)))
        for number in range(20):
            await here.request(there.key, b"%d" % number, tags="fail-fast")
            await here.request((absent.id, None), b"x", tags="fail-fast")
        got = [envelope.plain for envelope in await there.receive_many(20)]
        assert got == [b"%d" % number for number in range(20)]
        answers = await here.receive_many(20)
        assert {answer.error.message for answer in answers} == {"destination offline"}
    assert server.run("EXISTS", f"stream:{absent.id}") == 0


async def test_a_barrier_waits_for_answers_from_elsewhere(relay_pair: RelayProcess) -> None:
    """The pong waits for the look-up whether another worker holds an absent session."""
    one, absent = fresh_twins(2)
    async with session(relay_pair.url, one) as sender:
        for _ in range(50):
            sent = await sender.request((absent.id, None), tags="fail-fast")
            await sender.barrier()
            answer = sender.inbox.get_nowait()[1]  # before the pong, so it is here already
            assert (answer.uid, answer.error.message) == (sent.uid, "destination offline")


async def test_own_messages_come_back(relay: RelayProcess) -> None:
    async with session(relay.url, *fresh_twins(1)) as alone:
        await alone.request(alone.key, b"to myself")
        assert (await alone.receive()).plain == b"to myself"


async def test_messages_of_every_size_in_one_batch_arrive_whole_and_in_order(
    relay: RelayProcess,
) -> None:
    """Messages of every size arrive whole and in order.

    The relay passes large ones to the kernel in pieces, and copies small ones into one buffer.
    """
    sizes = [1, 20_000, 300, 4_096, 700_000, 5_000, 0, 70_000] * 5
    payloads = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    one, two = fresh_twins(2)
    async with session(relay.url, one) as here, session(relay.url, two) as there:
        await asyncio.gather(*(here.request(there.key, payload) for payload in payloads))
        got = [envelope.plain for envelope in await there.receive_many(len(payloads))]
        assert [(len(each), each[:1]) for each in got] == [
            (len(each), each[:1]) for each in payloads
        ]
        assert got == payloads


async def test_answers_find_the_session_that_asked(relay_pair: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with (
        session(relay_pair.url, one, "a") as asker,
        session(relay_pair.url, one, "b") as other,
        session(relay_pair.url, two) as service,
    ):
        await asker.request(service.key, b"question")
        question = await service.receive()
        source = question.source
        asker_key = (source.twin, source.connection if source.HasField("connection") else None)
        await service.send(envelopes.response(service.key, asker_key, b"answer"))
        assert (await asker.receive()).plain == b"answer"
        await other.barrier()
        assert other.inbox.empty()


async def test_a_guest_is_served_here_and_its_mail_moves_on_when_it_leaves(
    start_server, start_relay
) -> None:
    server = start_server(append_fsync="no")
    relays = [start_relay(server), start_relay(server)]
    (one,) = fresh_twins(1)
    async with session(relays[0].url, one) as sender:
        await sender.request((ELSEWHERE_TWIN.id, None), b"while away")
        await sender.barrier()
        assert _handed_on(server) == 1
        async with session(relays[1].url, ELSEWHERE_TWIN) as guest:
            await guest.barrier()
            name = str(ELSEWHERE_TWIN.id)
            await eventually(lambda: server.run("SISMEMBER", "relay:guests", name))
            # Until workers have compared guests, the message may still go to the partner relay.
            await heartbeats(relays[0], 2)
            await sender.request(guest.key, b"as a guest")
            assert (await guest.receive()).plain == b"as a guest"
            assert _handed_on(server) == 1
            guest.stop_reading()
            for _ in range(200):
                await sender.request(guest.key, bytes(64 * 1024))
            await sender.barrier()
            await guest.abort()
        await eventually(lambda: not server.run("SISMEMBER", "relay:guests", name))
        await eventually(lambda: server.run("XLEN", f"stream:{name}") == 0)
        assert _handed_on(server) > 1
        await sender.request((ELSEWHERE_TWIN.id, None), b"away again")
        await sender.barrier()
        assert server.run("XLEN", f"stream:{name}") == 0


async def test_a_guest_of_a_relay_that_stopped_is_none_any_more(start_relay) -> None:
    """A guest of a stopped relay is removed by the next worker, as no worker saw it leave."""
    relay = start_relay()
    (one,) = fresh_twins(1)
    name = str(ELSEWHERE_TWIN.id)
    guest = await connect(relay.url, ELSEWHERE_TWIN)
    await guest.barrier()
    await eventually(lambda: relay.redis.run("SISMEMBER", "relay:guests", name))
    async with session(relay.url, one) as sender:
        guest.stop_reading()
        for _ in range(200):
            await sender.request(guest.key, bytes(64 * 1024))
        await sender.barrier()
    relay.stop()
    await guest.abort()
    assert relay.redis.run("XLEN", f"stream:{name}") > 0
    relay.start()
    await eventually(lambda: not relay.redis.run("SISMEMBER", "relay:guests", name))
    await eventually(lambda: relay.redis.run("XLEN", f"stream:{name}") == 0)
    before = _handed_on(relay.redis)
    assert before > 0
    async with session(relay.url, one) as sender:
        await sender.request((ELSEWHERE_TWIN.id, None), b"away")
        await sender.barrier()
        assert _handed_on(relay.redis) == before + 1


async def test_a_twin_of_two_relays_belongs_here(relay: RelayProcess) -> None:
    assert relay.redis is not None
    async with session(relay.url, *fresh_twins(1)) as sender:
        before = relay.redis.run("XLEN", f"stream:{BOTH_TWIN.id}")
        await sender.request((BOTH_TWIN.id, None), b"kept here")
        await sender.barrier()
        assert relay.redis.run("XLEN", f"stream:{BOTH_TWIN.id}") == before + 1
