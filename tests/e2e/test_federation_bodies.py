"""Bodies of wrong length, slow or endless bodies, and a killed process that checks signatures."""

from __future__ import annotations

import asyncio
import contextlib
import time

import psutil
import pytest

from proto.federation import batch
from relay.federation.verification import WAITING
from tests.support.bystanders import bystanders
from tests.support.children import children
from tests.support.federation_client import FederationClient, federation, signed
from tests.support.identities import Twin
from tests.support.raw_http import exchange, read_answer, tcp
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import session
from tests.support.waiting import eventually
from tests.support.world import ELSEWHERE_TWIN as FAR
from tests.support.world import fresh_twins

MIB = 1 << 20
CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def test_a_chunked_body_is_a_body(relay: RelayProcess) -> None:
    (one,) = fresh_twins(1)
    async with session(relay.url, one) as client, tcp(relay.port) as (reader, writer):
        for size in (7, 50_000, 1 << 20):  # the connection is kept
            body = signed(FAR, (one.id, None), bytes(200_000)).SerializeToString()
            step = max(size, len(body) // 100)
            writer.write(CHUNKED)
            for start in range(0, len(body), step):
                writer.write(chunk(body[start : start + step]))
                await writer.drain()
            writer.write(chunk(b""))
            assert (await read_answer(reader)).status == 202
            assert await client.receive_bytes() == body


async def test_expect_100_continue(relay: RelayProcess) -> None:
    (one,) = fresh_twins(1)
    body = signed(FAR, (one.id, None)).SerializeToString()
    head = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    async with tcp(relay.port) as (reader, writer):
        writer.write(head % len(body))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await read_answer(reader)).status == 202


async def test_an_endless_body_413_and_closed(start_relay) -> None:
    relay = start_relay(settings={"relay.max_message_bytes": str(MIB)})

    async def pour(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(chunk(bytes(MIB)))
            await writer.drain()

    async with bystanders(relay), tcp(relay.port) as (reader, writer):
        writer.write(CHUNKED)
        pouring = asyncio.create_task(pour(writer))
        try:
            assert (await read_answer(reader)).status == 413
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(pouring, 10)
        finally:
            pouring.cancel()
    await eventually(lambda: relay.counted("relay_messages_total", reason="too_large") == 1)


@pytest.mark.parametrize("trickles", [True, False], ids=["trickles", "nothing comes"])
async def test_a_slow_body_503_and_closed(relay: RelayProcess, trickles: bool) -> None:
    async with bystanders(relay), tcp(relay.port) as (reader, writer):
        start = time.monotonic()
        writer.write(CHUNKED)
        answering = asyncio.create_task(read_answer(reader, timeout_s=20))
        while not (await asyncio.wait({answering}, timeout=0.5))[0]:
            if trickles:
                writer.write(chunk(b"x"))
        answer = await answering
        assert (answer.status, answer.body) == (503, b"body came too slowly")
        assert 9 < time.monotonic() - start < 15
        assert await asyncio.wait_for(reader.read(), 10) == b""


async def test_a_body_shorter_than_announced_is_not_taken(relay: RelayProcess) -> None:
    (one,) = fresh_twins(1)
    body = signed(FAR, (one.id, None)).SerializeToString()

    def ended() -> float:
        return relay.counted("federation_inbound_refused_total", reason="body_ended")

    before = ended()
    async with tcp(relay.port) as (_, writer):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + body)
        await writer.drain()
    await eventually(lambda: ended() == before + 1)
    assert relay.redis is not None
    assert relay.redis.run("EXISTS", f"stream:{one.id}") == 0


async def test_many_large_bodies_at_once_have_one_budget(start_relay) -> None:
    relay = start_relay(settings={"relay.partial_bytes": str(MIB)})
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n"
    async with tcp(relay.port) as (first, one), tcp(relay.port) as (second, two):
        one.write(head + bytes(600_000))
        await one.drain()
        two.write(head + bytes(600_000))
        refused, waiting = await asyncio.wait(
            [asyncio.create_task(read_answer(each)) for each in (first, second)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        (answer,) = (task.result() for task in refused)
        assert (answer.status, answer.body) == (503, b"too many bodies at once")
        for task in waiting:
            task.cancel()
    (one_twin,) = fresh_twins(1)
    async with federation(relay.port) as other:  # the budget is released
        sent = signed(FAR, (one_twin.id, None), bytes(900_000))
        assert (await other.post(sent)).status == 202


async def test_what_waits_to_be_decided_has_one_budget(start_server, start_relay) -> None:
    server = start_server()
    relay = start_relay(server, settings={"relay.partial_bytes": str(MIB)})
    (one,) = fresh_twins(1)
    # Together the messages are one byte more than the budget when they are complete, and never
    # before: whichever comes later is refused after it was read.
    large = signed(FAR, (one.id, None), bytes(MIB - 60_000))
    room = MIB - large.ByteSize()
    rest = signed(FAR, (one.id, None), bytes(room)).ByteSize() - room
    sent = [large, signed(FAR, (one.id, None), bytes(room + 1 - rest))]
    assert sum(envelope.ByteSize() for envelope in sent) == MIB + 1
    async with federation(relay.port) as first, federation(relay.port) as second:
        assert (await first.post(signed(FAR, (one.id, None)))).status == 202
        server.pause()
        try:
            answers = [
                asyncio.create_task(each.post(body))
                for each, body in zip((first, second), sent, strict=True)
            ]
            refused, (waiting,) = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
            (answer,) = (task.result() for task in refused)
            assert (answer.status, answer.body) == (503, b"too many bodies at once")
        finally:
            server.resume()
        assert (await waiting).status == 202
        assert [
            (await each.post(body)).status for each, body in zip((first, second), sent, strict=True)
        ] == [202, 202]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("GET /", 404), ("PUT /", 404), ("POST /elsewhere", 404), (f"GET {batch.PATH}", 404)],
)
async def test_other_requests_404(relay: RelayProcess, request_line: str, status: int) -> None:
    request = f"{request_line} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    assert (await exchange(relay.port, request.encode())).status == status


async def test_pipelined_requests_are_answered_in_order(relay: RelayProcess) -> None:
    (one,) = fresh_twins(1)
    async with session(relay.url, one) as client, tcp(relay.port) as (reader, writer):
        for number in range(20):
            body = signed(FAR, client.key, b"%d" % number).SerializeToString()
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
            writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        statuses = [(await read_answer(reader)).status for _ in range(40)]
        assert statuses == [202, 400] * 20
        got = [int(each.plain) for each in await client.receive_many(20)]
        assert got == list(range(20))


async def test_checks_go_on_when_their_process_is_killed(start_relay) -> None:
    relay = start_relay()
    (one,) = fresh_twins(1)
    assert checkers(relay) == [], "nothing was to be checked yet"
    expected = tuple(403 if n % 3 == 2 else 202 for n in range(300))
    async with bystanders(relay), federation(relay.port) as other:
        for _ in range(3):
            assert await other.deliver_batch(records_for(one, 300)) == expected
            (checker,) = await eventually(lambda: checkers(relay))
            delivering = asyncio.create_task(other.deliver_batch(records_for(one, 300)))
            await asyncio.sleep(0)
            checker.kill()
            assert await delivering == expected
    await eventually(lambda: relay.counted("federation_inbound_checkers_restarted_total") == 3)
    (worker,) = relay.worker_pids().values()
    (checker,) = await eventually(lambda: checkers(relay))
    psutil.Process(worker).kill()
    psutil.wait_procs([checker], timeout=10)
    assert not checker.is_running(), "it ends with its worker"


def records_for(one: Twin, count: int, good: bool = True) -> list[batch.Record]:
    """Return different messages, of which every third, or all, are forged.

    They differ because a message is accepted only once.
    """
    found = []
    for number in range(count):
        envelope = signed(FAR, (one.id, None))
        if number % 3 == 2 or not good:
            envelope.plain = b"other"
        found.append(batch.Record(b"1-%d-0" % number, False, envelope.SerializeToString()))
    return found


def checkers(relay: RelayProcess) -> list[psutil.Process]:
    """Return the processes that check signatures for the relay's only worker."""
    (worker,) = relay.worker_pids().values()
    return children("relay.federation.verifier", of=worker)


async def test_a_forged_flood_leaves_room_for_others(start_relay) -> None:
    relay = start_relay(settings={"federation.requests_per_ip_per_s": "0"})
    (one,) = fresh_twins(1)
    good = signed(FAR, (one.id, None))
    records = records_for(one, batch.MAX_MESSAGES, good=False)
    async with contextlib.AsyncExitStack() as stack:

        async def connect(address: str) -> FederationClient:
            return await stack.enter_async_context(federation(relay.port, address))

        other = await connect("127.0.0.1")

        async def refused() -> bool:
            """Check for a final refusal.

            A worker that just started refuses for now, until it knows which relays it trusts.
            """
            return await other.deliver_batch(records[:2]) == (403, 403)

        await eventually(refused)
        (checker,) = await eventually(lambda: checkers(relay))
        checker.suspend()  # its work piles up until the worker notices
        flood = [await connect("127.0.0.2") for _ in range(WAITING // len(records) + 8)]
        flooding = [
            asyncio.create_task(each.deliver_batch(records, relay_id=b"%x" % number))
            for number, each in enumerate(flood)
        ]
        await asyncio.wait(flooding, return_when=asyncio.FIRST_COMPLETED)
        assert (await other.post(good)).status == 202
        answers = [status for statuses in await asyncio.gather(*flooding) for status in statuses]
        assert set(answers) == {403, 503}, "some were turned away, and none were taken"


async def test_without_processes_the_worker_checks_itself(start_relay) -> None:
    relay = start_relay(settings={"federation.verify_processes": "0"})
    (one,) = fresh_twins(1)
    async with bystanders(relay), federation(relay.port) as other:
        expected = tuple(403 if n % 3 == 2 else 202 for n in range(512))
        assert await other.deliver_batch(records_for(one, 512)) == expected
