"""Twins' sessions on streams of one connection: no session affects the others."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
from websockets.asyncio.client import connect as websocket_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from peer.mux import ConnectionEndedError, StreamFailedError
from proto.mux.messages import framed
from tests.e2e.conftest import StartRelay
from tests.support import identities, rmb_client
from tests.support.identities import Twin
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import RmbClient
from tests.support.stream_client import BOUNDS, connection, session, sign_in
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

SIZE = 4096
SESSIONS = 2_000
AT_ONCE = 100


def queued(relay: RelayProcess, twin: Twin) -> int:
    """Return the number of messages in the queue of a twin's session without an id."""
    assert relay.redis is not None
    count: int = relay.redis.run("XLEN", f"stream:{twin.id}")
    return count


async def test_sessions_on_streams_and_on_websockets_talk(any_relay: RelayProcess) -> None:
    one, two, three = fresh_twins(3)
    async with (
        connection(any_relay.url) as mux,
        session(mux, one) as first,
        session(mux, two, "phone") as second,
        rmb_client.session(any_relay.url, three) as third,
    ):
        clients = (first, second, third)
        for number in range(50):
            for source in clients:
                for target in clients:
                    if source is not target:
                        await source.request(target.key, b"%d" % number)
        for client in clients:
            got = [envelope.plain for envelope in await client.receive_many(100)]
            assert sorted(got) == sorted([b"%d" % number for number in range(50)] * 2)


async def test_two_workers(relay_pair: RelayProcess) -> None:
    twins = fresh_twins(8)
    async with contextlib.AsyncExitStack() as stack:
        muxes = [await stack.enter_async_context(connection(relay_pair.url)) for _ in range(4)]
        clients = [
            await stack.enter_async_context(session(muxes[number % 4], twin))
            for number, twin in enumerate(twins)
        ]
        for source in clients:
            for target in clients:
                await source.request(target.key, b"%d" % source.twin.id)
        for client in clients:
            got = {envelope.source.twin for envelope in await client.receive_many(len(clients))}
            assert got == {twin.id for twin in twins}


async def _answer(connecting: Any) -> tuple[int, bytes]:
    with pytest.raises(InvalidStatus) as refused:
        await connecting
    response = refused.value.response
    return response.status_code, bytes(response.body or b"")


async def test_a_refusal_is_that_of_a_websocket(relay: RelayProcess) -> None:
    (twin,) = fresh_twins(1)
    tokens = [
        "",
        "x",
        twin.token(now=int(time.time()) - 1_000),
        twin.token("s" * 500),
        twin.token()[:-3] + "AAA",
        identities.twin(4_000_000_000).token(),
    ]
    async with connection(relay.url) as mux, session(mux, twin, "stays") as neighbour:
        for token in tokens:
            expected = (
                (400, b"missing jwt")
                if not token
                else await _answer(rmb_client.connect(relay.url, twin, token=token))
            )
            assert await _answer(sign_in(mux, twin, token=token)) == expected
        status, text = await _answer(sign_in(mux, twin, token="x" * 8_193))
        assert (status, text) == (401, b"invalid jwt: a token of 8193 bytes is longer than 8192")
        await neighbour.barrier()


async def test_a_newer_session_replaces_one_stream_only(relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with (
        connection(relay.url) as mux,
        session(mux, two) as neighbour,
        session(mux, one, "s") as first,
        rmb_client.session(relay.url, one, "s") as second,
    ):
        assert await first.closed() == (4001, "replaced")
        async with session(mux, one, "s") as third:
            assert (await second.closed())[0] == 4001
            await neighbour.request(third.key, b"for the third")
            assert (await third.receive()).plain == b"for the third"


async def test_a_session_that_does_not_read_is_kept_in_its_queue(relay: RelayProcess) -> None:
    slow, quick, source = fresh_twins(3)
    count = 1_000
    async with (
        rmb_client.session(relay.url, source) as sender,
        connection(relay.url) as mux,
        session(mux, slow) as stuck,
        session(mux, quick) as neighbour,
    ):
        await stuck.barrier()
        stuck.stop_reading()
        for number in range(count):
            payload = b"%d " % number + bytes(SIZE)
            await sender.request(stuck.key, payload)
            await sender.request(neighbour.key, payload)
        got = await neighbour.receive_many(count)
        assert [int(each.plain.split()[0]) for each in got] == list(range(count))
        waiting = queued(relay, slow)
        assert waiting > count * 0.9, "what was not read counts as delivered"
        stuck.resume_reading()
        got = await stuck.receive_many(count)
        assert [int(each.plain.split()[0]) for each in got] == list(range(count))
        await eventually(lambda: queued(relay, slow) == 0)


async def test_what_was_not_read_comes_again_and_nothing_else(relay: RelayProcess) -> None:
    one, source = fresh_twins(2)
    count = 300
    async with rmb_client.session(relay.url, source) as sender:
        async with connection(relay.url) as mux:
            client = await sign_in(mux, one)
            await sender.request(client.key, b"read")
            assert (await client.receive()).plain == b"read"
            await eventually(lambda: queued(relay, one) == 0)
            client.stop_reading()
            for number in range(count):
                await sender.request(client.key, b"%d " % number + bytes(SIZE))
            await sender.barrier()
        # A read was in progress; the relay may not have learnt that it was read.
        had = client.inbox.qsize()
        assert had * SIZE < 2 * BOUNDS.stream_bytes
        async with connection(relay.url) as mux, session(mux, one) as again:
            got = [int(each.plain.split()[0]) for each in await _all(again)]
            assert got == list(range(got[0], count))
            assert got[0] <= had


async def _all(client: RmbClient) -> list[Any]:
    await client.barrier()
    found = []
    while True:
        try:
            found.append(await client.receive(1.0))
        except TimeoutError:
            return found


async def test_signing_out_ends_the_session_with_its_messages_read(relay: RelayProcess) -> None:
    one, source = fresh_twins(2)
    assert relay.redis is not None
    async with (
        rmb_client.session(relay.url, source) as sender,
        connection(relay.url) as mux,
        session(mux, source, "stays") as neighbour,
    ):
        client = await sign_in(mux, one)
        for number in range(100):
            await sender.request(client.key, b"%d" % number)
        await sender.barrier()
        await client.close()
        assert (await client.closed())[0] == 1000
        got = [client.inbox.get_nowait()[1].plain for _ in range(client.inbox.qsize())]
        assert got == [b"%d" % number for number in range(len(got))]
        await eventually(
            lambda: (
                not relay.redis.run("HEXISTS", "relay:sessions", str(one.id))
                and queued(relay, one) == 100 - len(got)
            )
        )
        await neighbour.barrier()


async def test_bad_input_on_a_stream_ends_that_session_only(relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with connection(relay.url) as mux, session(mux, two) as neighbour:
        for content, code in ((b"\xff\xff\xff", 1007), (b"", 1007)):
            async with session(mux, one) as client:
                await client.send_bytes(content)
                if content:
                    assert (await client.closed())[0] == code
                else:
                    await client.barrier()  # as on a websocket: only counted
        async with session(mux, one) as client:
            await _stream_of(client).write(bytes.fromhex("c000000100000000"))
            assert await client.closed() == (1009, "too_large")
        await neighbour.barrier()


def _stream_of(client: RmbClient) -> Any:
    return client.websocket.stream  # type: ignore[attr-defined]


OPEN = bytes.fromhex("00000100010000")


@pytest.mark.parametrize(
    "messages",
    [
        [b""],
        [b"\x40"],  # half an id
        [bytes.fromhex("01000100000010")],  # of a stream that the relay never opened
        [OPEN, bytes.fromhex("000009")],
        [OPEN, bytes.fromhex("0001000000")],
    ],
)
async def test_a_violation_ends_that_connection_only(
    relay: RelayProcess, messages: list[bytes]
) -> None:
    (twin,) = fresh_twins(1)
    async with connection(relay.url) as other, session(other, twin) as neighbour:
        async with websocket_connect(f"{relay.url}/streams", proxy=None) as websocket:
            for message in messages:
                await websocket.send(message)
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(5):
                    while True:
                        await websocket.recv()
            assert websocket.close_code == 1002
        await neighbour.barrier()


async def test_limits_and_times(start_relay: StartRelay) -> None:
    relay = start_relay(
        settings={
            "mux.max_streams": "3",
            "mux.max_connections": "2",
            "relay.handshake_timeout_s": "0.5",
            "relay.handshakes_per_ip_per_s": "0",
        }
    )
    (one,) = fresh_twins(1)
    async with connection(relay.url) as mux, session(mux, one) as first:
        stream = await mux.open_stream()
        await stream.write(framed([b"half"])[:2])
        assert await stream.read_all() == framed([b"408 no token in time"])
        async with session(mux, one, "2"), session(mux, one, "3"):
            with pytest.raises(StreamFailedError):
                await sign_in(mux, one, "4")
        async with connection(relay.url) as silent:
            with pytest.raises(ConnectionEndedError, match="503"):
                async with connection(relay.url):
                    pass
            async with asyncio.timeout(60):
                await silent.ended.wait()
        async with connection(relay.url):
            await first.barrier()


async def test_a_drain_tells_each_session(start_relay: StartRelay) -> None:
    relay = start_relay()
    one, two = fresh_twins(2)
    async with connection(relay.url) as mux:
        clients = [await sign_in(mux, one), await sign_in(mux, two)]
        stopping = asyncio.create_task(asyncio.to_thread(relay.stop))
        for client in clients:
            assert await client.closed() == (1012, "drained")
        async with asyncio.timeout(60):
            await mux.ended.wait()
        await stopping


async def test_two_thousand_sessions_and_one_that_never_reads(start_relay: StartRelay) -> None:
    relay = start_relay(settings={"relay.handshakes_per_ip_per_s": "0"})
    source, slow, *twins = fresh_twins(10)
    async with connection(relay.url) as mux, rmb_client.session(relay.url, source) as sender:
        stuck = await sign_in(mux, slow)
        stuck.stop_reading()
        clients: list[RmbClient] = []
        for first in range(0, SESSIONS, AT_ONCE):
            numbers = range(first, first + AT_ONCE)
            signing_in = (sign_in(mux, twins[each % len(twins)], f"s{each}") for each in numbers)
            clients += await asyncio.gather(*signing_in)
        for client in clients:
            await sender.request(stuck.key, bytes(SIZE))
            await sender.request(client.key, b"hello")
        for client in clients:
            assert (await client.receive(30)).plain == b"hello"
        assert queued(relay, slow) > SESSIONS * 0.9
        for client in (stuck, *clients):
            await client.abort()
