"""Repeats from partner relays are stored once; messages whose sender has gone are not stored."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import AsyncExitStack

import pytest

from proto.rmb import types_pb2 as pb
from relay.queues.batch import TAKEN_PERIOD_S, TAKEN_PERIODS
from tests.support.federation_client import FederationClient, federation, queued, record, signed
from tests.support.raw_http import tcp
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.waiting import eventually, fresh_window
from tests.support.world import ELSEWHERE_TWIN as FAR
from tests.support.world import fresh_twins

UNDER_WAY = (503, b"the same message is under way")
PROXIED = {"X-Forwarded-Proto": "https"}
"""Headers that make a request take the path through ASGI."""


async def test_repeats_are_taken_once_over_a_restart_of_the_worker(
    start_server, start_relay
) -> None:
    server = start_server(append_fsync="no")
    relay = start_relay(server)
    (one,) = fresh_twins(1)
    sent = [signed(FAR, (one.id, None), b"%d" % n) for n in range(4)]
    records = [record(n, each) for n, each in enumerate(sent)]
    async with federation(relay.port) as other:
        assert [(await other.post(sent[0])).status for _ in range(2)] == [202, 202]
        assert await other.deliver_batch(records[1:3]) == (202, 202)
    relay.kill()
    relay.start()
    async with federation(relay.port) as other:
        assert await other.deliver_batch(records) == (208, 208, 208, 202)
        # Whichever relay delivers it, and whatever id the delivery has.
        assert (await other.deliver(sent[0], "1-9-0", relay_id="bb")).status == 202
        assert (await other.post(sent[1], headers=PROXIED)).status == 202
        # Fields that are not signed do not make it a different message.
        assert (await other.post(sent[2].SerializeToString() + b"\xba\x06\x01x")).status == 202
    assert queued(server, one) == [each.SerializeToString() for each in sent]
    await eventually(lambda: relay.counted("federation_inbound_repeated_total") == 6)
    for key in server.run("KEYS", "federation:taken:*"):
        assert 0 < server.run("TTL", key) <= TAKEN_PERIOD_S * TAKEN_PERIODS


async def test_retries_after_a_time_out_are_taken_once_by_two_workers(
    start_server, start_relay
) -> None:
    """Retries are stored once.

    Redis hangs while messages are posted, given up and posted again, as the reference does.
    """
    server = start_server()
    relays = [start_relay(server), start_relay(server)]
    (one,) = fresh_twins(1)
    sent = [signed(FAR, (one.id, None), b"%d" % n) for n in range(30)]
    server.pause()
    try:
        for number, envelope in enumerate(sent):
            for relay in (relays[number % 2], relays[1 - number % 2]):
                async with tcp(relay.port) as (reader, writer):
                    other = FederationClient(reader, writer)
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await other.post(envelope)
        tries = [asyncio.create_task(_until_taken(relays, n, each)) for n, each in enumerate(sent)]
        for relay in relays:
            await asyncio.to_thread(relay.get, "/live")
    finally:
        server.resume()
    await asyncio.gather(*tries)
    assert sorted(queued(server, one)) == sorted(each.SerializeToString() for each in sent)


async def _until_taken(relays: list[RelayProcess], number: int, envelope: pb.Envelope) -> None:
    places = itertools.count(number)

    async def taken() -> bool:
        async with federation(relays[next(places) % 2].port) as other:
            return (await other.post(envelope)).status == 202

    await eventually(taken, 30, "a relay that takes it")


@pytest.mark.parametrize("headers", [{}, PROXIED], ids=["small", "asgi"])
async def test_a_repeat_while_the_first_is_under_way_is_not_taken(
    start_server, start_relay, headers: dict[str, str]
) -> None:
    """While answers are late because Redis hangs, no repeat is stored beside the first."""
    server = start_server()
    relay = start_relay(server)
    (one,) = fresh_twins(1)
    sent = [signed(FAR, (one.id, None), b"%d" % n) for n in range(4)]
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(federation(relay.port)) for _ in range(5)]
        server.pause()
        try:
            waiting = []
            for number, envelope in enumerate(sent):
                post = others[number].post(envelope, headers=headers)
                waiting.append(asyncio.create_task(post))
                await asyncio.to_thread(relay.get, "/live")
            for envelope in sent:
                answer = await others[4].post(envelope, headers=headers)
                assert (answer.status, answer.body) == UNDER_WAY
        finally:
            server.resume()
        assert [(await each).status for each in waiting] == [202] * 4
        assert {(await others[4].post(each)).status for each in sent} == {202}
    assert len(queued(server, one)) == 4


@pytest.mark.parametrize("headers", [{}, PROXIED], ids=["small", "asgi"])
async def test_a_message_whose_client_has_gone_is_not_stored(
    start_server, start_relay, headers: dict[str, str]
) -> None:
    server = start_server()
    relay = start_relay(server)
    (one,) = fresh_twins(1)
    server.pause()
    try:
        async with AsyncExitStack() as stack:
            for number in range(10):
                other = await stack.enter_async_context(federation(relay.port))
                post = other.post(signed(FAR, (one.id, None), b"%d" % number), headers=headers)
                task = asyncio.create_task(post)
                await asyncio.to_thread(relay.get, "/live")
                task.cancel()
        await asyncio.to_thread(relay.get, "/live")  # the worker has now read that they ended
    finally:
        server.resume()
    await eventually(
        lambda: (
            relay.counted("federation_inbound_refused_total", status="503", reason="client_gone")
            == 10
        )
    )
    async with federation(relay.port) as other:
        last = signed(FAR, (one.id, None), b"last")
        assert (await other.post(last)).status == 202
    assert queued(server, one) == [last.SerializeToString()]


async def test_a_relay_that_starts_answers_503_at_once(start_relay) -> None:
    relay = start_relay()
    (one,) = fresh_twins(1)
    relay.stop()
    relay.start(wait=False)
    started = asyncio.create_task(asyncio.to_thread(relay.wait_ready))
    waits = []
    while not started.done():
        try:
            async with federation(relay.port) as other:
                asked = time.monotonic()
                answer = await other.post(signed(FAR, (one.id, None)))
                waits.append((answer.status, time.monotonic() - asked))
        except OSError:
            assert not waits, "it does not listen yet"
        await asyncio.sleep(0.05)
    await started
    refused = [wait_s for status, wait_s in waits if status == 503]
    assert len(refused) > 3
    assert max(refused) < 1.5, "on a busy machine"


async def test_repeats_are_charged_to_nobody(start_relay) -> None:
    relay = start_relay(settings={"limits.count": "5", "limits.size": "100000"})
    one, author = fresh_twins(2)
    sent = [signed(author, (one.id, None), b"%d" % n) for n in range(5)]
    old = signed(author, (one.id, None), timestamp=int(time.time()) - 11 * 86_400)
    await fresh_window(10)
    async with federation(relay.port) as other:
        assert {(await other.post(old)).status for _ in range(10)} == {403}
        assert {(await other.post(sent[0])).status for _ in range(40)} == {202}
        for number in range(10):
            assert await other.deliver_batch([record(number, sent[0])]) == (208,)
        assert [(await other.post(each)).status for each in sent[1:]] == [202] * 4
        assert (await other.post(signed(author, (one.id, None)))).status == 503


async def test_repeats_for_a_connected_session_are_charged_to_nobody(start_relay) -> None:
    """Repeats do not count against a limit, though with much of it left they are found late.

    They are found when they would be stored.
    """
    relay = start_relay(settings={"limits.count": "40", "limits.size": "1000000"})
    one, author = fresh_twins(2)
    await fresh_window(20)
    async with session(relay.url, one) as client, federation(relay.port) as other:
        await client.barrier()
        sent = [signed(author, client.key, b"%d" % number) for number in range(41)]
        for envelope in sent[:3]:
            assert (await other.post(envelope)).status == 202
        for number in range(60):
            assert await other.deliver_batch([record(number, sent[number % 3])]) == (208,)
        statuses = [(await other.post(each)).status for each in sent[3:]]
        assert statuses == [202] * 37 + [503]
        received = await client.receive_many(40)
    assert [each.plain for each in received] == [b"%d" % number for number in range(40)]


async def test_what_finds_no_room_is_charged_to_nobody(start_server, start_relay) -> None:
    """A message refused by a full queue does not count against a limit.

    The relay does not remember it, so it can be repeated any number of times.
    """
    bounds = {"queue.max_messages": "4", "limits.count": "5", "limits.size": "100000"}
    server = start_server()
    relay = start_relay(server, settings=bounds)
    full, author, *others = fresh_twins(7)
    for number in range(4):
        envelope = signed(FAR, (full.id, None), b"%d" % number).SerializeToString()
        server.run("XADD", f"stream:{full.id}", "*", "_", envelope)
    sent = signed(author, (full.id, None))
    await fresh_window(10)
    async with federation(relay.port) as other:
        await other.post(signed(FAR, (full.id, None), b"so that the relay looks"))
        assert {(await other.post(sent)).status for _ in range(10)} == {503}
        for to in others:
            assert (await other.post(signed(author, (to.id, None)))).status == 202
