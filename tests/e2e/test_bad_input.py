"""Every kind of bad input gets its documented answer, is counted by reason, and harms no others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator

import psutil
import pytest
from websockets.exceptions import ConnectionClosed

from proto.websocket.errors import Fault
from tests.e2e.conftest import StartRelay
from tests.support import envelopes
from tests.support.bystanders import bystanders
from tests.support.raw_http import UPGRADE_HEADERS, exchange, read_answer, tcp, upgrade
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import RmbClient, connect, session
from tests.support.waiting import eventually
from tests.support.world import (
    ELSEWHERE_TWIN,
    NO_RELAY_TWIN,
    UNKNOWN,
    UNKNOWN_TWIN,
    UNUSABLE_TWIN,
    fresh_twins,
)

MIB = 1024 * 1024
MESSAGES = "relay_messages_total"
SESSIONS = "relay_session_evictions_total"
HANDSHAKES = "relay_handshakes_refused_total"


@contextlib.asynccontextmanager
async def counted(
    relay: RelayProcess, metric: str, reason: str, by: int = 1
) -> AsyncIterator[None]:
    """Check that the block raises the metric by exactly `by` and does not affect bystanders."""
    before = relay.counted(metric, reason=reason)
    async with bystanders(relay):
        yield
    await eventually(
        lambda: relay.counted(metric, reason=reason) >= before + by,
        what=f'{metric}{{reason="{reason}"}} to grow by {by}',
    )
    assert relay.counted(metric, reason=reason) == before + by


# --- messages that end the session ----------------------------------------------------------------


async def _closes(client: RmbClient, code: int, text: str) -> None:
    """Check that the session ends with the close frame that the documentation specifies."""
    assert await client.closed() == (code, text)


async def test_an_unparsable_message_closes_1007(relay: RelayProcess) -> None:
    async with counted(relay, SESSIONS, "unparsable"), session(relay.url, *fresh_twins(1)) as bad:
        await bad.send_bytes(b"\xff not an envelope")
        await _closes(bad, 1007, "unparsable")


async def test_a_text_frame_closes_1003(relay: RelayProcess) -> None:
    async with counted(relay, SESSIONS, "text_frame"), session(relay.url, *fresh_twins(1)) as bad:
        await bad.send_text("hello")
        await _closes(bad, 1003, "text_frame")


async def test_an_oversize_message_closes_1009(relay: RelayProcess) -> None:
    async with counted(relay, SESSIONS, "too_large"), session(relay.url, *fresh_twins(1)) as bad:
        with contextlib.suppress(ConnectionClosed):
            await bad.send_bytes(bytes(16 * MIB + 1))
        await _closes(bad, 1009, "too_large")


async def test_an_announced_size_is_not_believed(relay: RelayProcess) -> None:
    """A header that announces 2^62 bytes allocates no memory and closes the session."""
    (worker,) = relay.worker_pids().values()
    before = psutil.Process(worker).memory_info().rss
    async with counted(relay, SESSIONS, "too_large"), session(relay.url, *fresh_twins(1)) as bad:
        bad.websocket.transport.write(struct.pack("!BBQ4s", 0x82, 0xFF, 1 << 62, b"mask"))
        await _closes(bad, 1009, "too_large")
    assert psutil.Process(worker).memory_info().rss - before < 32 * MIB


async def test_sessions_of_one_twin_hold_incomplete_messages_together(
    start_relay: StartRelay,
) -> None:
    """Incomplete messages of one twin's sessions count together: another twin's message gets
    through, although each of these sessions holds less than that message.
    """
    relay = start_relay(settings={"relay.partial_bytes": str(MIB)})
    one, two = fresh_twins(2)
    async with contextlib.AsyncExitStack() as stack:
        idle = []
        for sid in "abcd":
            client = await stack.enter_async_context(session(relay.url, one, sid))
            head = struct.pack("!BBQ4s", 0x02, 0xFF, 250_000, b"mask")  # more fragments to come
            client.websocket.transport.write(head + bytes(250_000))
            await (await client.websocket.ping())
            idle.append(client)
        other = await stack.enter_async_context(session(relay.url, two))
        sent = await other.request(other.key, bytes(450_000))
        assert await other.receive_bytes() == sent.SerializeToString()
        # The relay closes, one after another, as many sessions as the other twin's message needs.
        # What the relay has counted and what the clients have received agree once the last of them
        # was notified.
        for metric in (SESSIONS, MESSAGES):
            await eventually(
                lambda metric=metric: (
                    0
                    < relay.counted(metric, reason="too_large")
                    == sum(not client.open for client in idle)
                ),
                what="as many of the idle sessions closed as counted",
            )
        for client in idle:
            if not client.open:
                assert await client.closed() == (1013, Fault.TOO_MUCH_INCOMPLETE.text)


async def test_a_compressed_frame_was_not_offered_1002(relay: RelayProcess) -> None:
    async with (
        counted(relay, SESSIONS, "protocol_error"),
        session(relay.url, *fresh_twins(1)) as bad,
    ):
        bad.websocket.transport.write(b"\xc2\x81\0\0\0\0x")  # RSV1 set
        await _closes(bad, 1002, "protocol_error: reserved bit set")


async def test_a_frame_without_mask_1002(relay: RelayProcess) -> None:
    async with (
        counted(relay, SESSIONS, "protocol_error"),
        session(relay.url, *fresh_twins(1)) as bad,
    ):
        bad.websocket.transport.write(b"\x82\x01x")
        await _closes(bad, 1002, "protocol_error: frame is not masked")


async def test_an_end_without_closing_handshake_is_a_client_close(relay: RelayProcess) -> None:
    async with counted(relay, SESSIONS, "client_close", by=3):  # with the two bystanders
        bad = await connect(relay.url, *fresh_twins(1))
        await bad.abort()


# --- messages that are refused --------------------------------------------------------------------


async def _refused(client: RmbClient, text: str) -> None:
    """Check that the next envelope is this error and that the session continues."""
    assert (await client.receive()).error.message == text
    await client.barrier()


async def _refused_for_size(client: RmbClient) -> None:
    """Check that the next envelope is an error with the bound and that the session continues."""
    answer = await client.receive()
    assert "bytes, at most" in answer.error.message
    assert len(answer.uid) <= 256
    await client.barrier()


async def test_an_empty_message_is_dropped(relay: RelayProcess) -> None:
    async with counted(relay, MESSAGES, "empty"), session(relay.url, *fresh_twins(1)) as bad:
        await bad.send_bytes(b"")
        await bad.barrier()
        assert bad.inbox.empty()


@pytest.mark.parametrize("source", ["other twin", "other sid", "no sid", "missing"])
async def test_a_wrong_source(relay: RelayProcess, source: str) -> None:
    one, two = fresh_twins(2)
    async with counted(relay, MESSAGES, "wrong_source"), session(relay.url, one, "s") as bad:
        keys = {"other twin": (two.id, "s"), "other sid": (one.id, "t"), "no sid": (one.id, None)}
        envelope = envelopes.request(keys.get(source, bad.key), (two.id, None))
        if source == "missing":
            envelope.ClearField("source")
        await bad.send(envelope)
        await _refused(bad, "message wrong source")


@pytest.mark.parametrize("destination", [None, (0, None)])
async def test_a_missing_destination(relay: RelayProcess, destination) -> None:
    async with (
        counted(relay, MESSAGES, "missing_destination"),
        session(relay.url, *fresh_twins(1)) as bad,
    ):
        await bad.request(destination)
        await _refused(bad, "message with missing destination")


async def test_an_unknown_destination_twin(relay: RelayProcess) -> None:
    async with counted(relay, MESSAGES, "unknown_twin"), session(relay.url, *fresh_twins(1)) as bad:
        await bad.request((UNKNOWN_TWIN.id, None))
        await _refused(bad, "unknown twin destination")


async def test_a_destination_without_relay(relay: RelayProcess) -> None:
    async with counted(relay, MESSAGES, "no_relay"), session(relay.url, *fresh_twins(1)) as bad:
        await bad.request((NO_RELAY_TWIN.id, None))
        await _refused(bad, "relay info is not set for this twin")


async def test_a_destination_whose_relays_are_none(relay: RelayProcess) -> None:
    async with (
        counted(relay, MESSAGES, "no_usable_relay"),
        session(relay.url, *fresh_twins(1)) as bad,
    ):
        await bad.request((UNUSABLE_TWIN.id, None))
        await _refused(bad, "twin lists no usable relay")


async def test_tags_of_a_megabyte(relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with counted(relay, MESSAGES, "too_large"), session(relay.url, one) as bad:
        await bad.request((two.id, None), tags="t" * MIB)
        await _refused_for_size(bad)


async def test_a_uid_of_a_megabyte(relay: RelayProcess) -> None:
    """The error does not repeat a uid of a megabyte, so the answer stays small."""
    one, two = fresh_twins(2)
    async with counted(relay, MESSAGES, "too_large"), session(relay.url, one) as bad:
        await bad.request((two.id, None), uid="u" * MIB)
        await _refused_for_size(bad)


async def test_a_request_with_too_many_fields(relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with counted(relay, MESSAGES, "too_large"), session(relay.url, one) as bad:
        sent = envelopes.request(bad.key, (two.id, None), bytes(70_000))
        sent.relays.extend([""] * 200)
        await bad.send(sent)
        answer = await bad.receive()
    assert (answer.uid, answer.error.message) == (sent.uid, "envelope has more than 128 fields")


async def test_a_destination_sid_of_a_megabyte(relay: RelayProcess) -> None:
    one, two = fresh_twins(2)
    async with counted(relay, MESSAGES, "too_large"), session(relay.url, one) as bad:
        await bad.request((two.id, "s" * MIB))
        await _refused_for_size(bad)


@pytest.mark.parametrize("off_s", [-86_400, 86_400])
async def test_a_clock_a_day_off_is_forwarded(relay: RelayProcess, off_s: int) -> None:
    one, two = fresh_twins(2)
    async with bystanders(relay), session(relay.url, one) as off:
        sent = [
            await off.request((two.id, None), b"queued", timestamp=int(time.time()) + off_s),
        ]
        await off.barrier()
        async with session(relay.url, two) as receiver:
            sent.append(
                await off.request(receiver.key, b"live", timestamp=int(time.time()) + off_s)
            )
            got = [await receiver.receive_bytes() for _ in sent]
        assert got == [envelope.SerializeToString() for envelope in sent]


# --- handshakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["garbage", "jwt=garbage", "%00%ff", "....", "a.b.c"])
async def test_garbage_queries_401(relay: RelayProcess, query: str) -> None:
    async with counted(relay, HANDSHAKES, "unauthorized"):
        assert (await upgrade(relay.port, f"/?{query}")).status == 401


@pytest.mark.parametrize("kind", ["expired", "another twin's"])
async def test_bad_tokens_401(relay: RelayProcess, kind: str) -> None:
    one, two = fresh_twins(2)
    head, claims, _signature = one.token().split(".")
    if kind == "expired":
        token = one.token(now=int(time.time()) - 1000)
    else:
        token = f"{head}.{claims}.{two.token().split('.')[2]}"
    async with counted(relay, HANDSHAKES, "unauthorized"):
        assert (await upgrade(relay.port, f"/?{token}")).status == 401


async def test_a_sid_above_its_bound_401(relay: RelayProcess) -> None:
    (twin,) = fresh_twins(1)
    async with counted(relay, HANDSHAKES, "unauthorized"):
        answer = await upgrade(relay.port, f"/?{twin.token('s' * 129)}")
        assert answer.status == 401
        assert b"sid" in answer.body


async def test_a_sid_of_a_megabyte_414(relay: RelayProcess) -> None:
    (twin,) = fresh_twins(1)
    async with counted(relay, HANDSHAKES, "protocol_error"):
        head, claims, signature = twin.token("s").split(".")
        token = f"{head}.{claims}{'A' * MIB}.{signature}"
        assert (await upgrade(relay.port, f"/?{token}")).status == 414


@pytest.mark.parametrize(
    "headers",
    [f"X-Big: {'b' * MIB}\r\n", "".join(f"X-{n}: many\r\n" for n in range(20_000))],
    ids=["one of a megabyte", "twenty thousand"],
)
async def test_header_bombs_431(relay: RelayProcess, headers: str) -> None:
    (twin,) = fresh_twins(1)
    async with counted(relay, HANDSHAKES, "protocol_error"):
        assert (await upgrade(relay.port, f"/?{twin.token()}", headers)).status == 431


@pytest.mark.parametrize(
    "request_bytes",
    [b"\x16\x03\x01 a TLS hello\r\n\r\n", b"GET\r\n\r\n", b"\0" * 100],
    ids=["TLS", "no target", "zeros"],
)
async def test_what_is_not_http_400(relay: RelayProcess, request_bytes: bytes) -> None:
    async with counted(relay, HANDSHAKES, "protocol_error"):
        assert (await exchange(relay.port, request_bytes)).status == 400


async def test_ten_thousand_half_open_handshakes(start_relay) -> None:
    """Clients can sign in beside the half-open handshakes, which all end by the time-out."""
    relay = start_relay(settings={"relay.handshake_timeout_s": "3"})
    count = 10_000
    ends: list[socket.socket] = []
    try:
        async with bystanders(relay):
            for number in range(count):
                end = socket.create_connection(("127.0.0.1", relay.port))
                ends.append(end)
                if number % 2:  # half of them send an incomplete request
                    end.send(b"GET / HTTP/1.1\r\n")
                if number % 100 == 0:
                    await asyncio.sleep(0)
            async with session(relay.url, *fresh_twins(1)) as late:
                await late.barrier()
        await eventually(
            lambda: relay.counted(HANDSHAKES, reason="handshake_timeout") >= count, timeout_s=20
        )
        assert relay.counted(HANDSHAKES, reason="handshake_timeout") == count
    finally:
        for end in ends:
            end.close()


async def test_a_handshake_in_single_bytes_is_timed_from_its_start(start_relay) -> None:
    relay = start_relay(settings={"relay.handshake_timeout_s": "1"})
    (twin,) = fresh_twins(1)
    request = f"GET /?{twin.token()} HTTP/1.1\r\n{UPGRADE_HEADERS}\r\n".encode()
    async with bystanders(relay), tcp(relay.port) as (reader, writer):
        answering = asyncio.create_task(read_answer(reader))
        for byte in request:
            if answering.done():
                break
            writer.write(bytes([byte]))
            await asyncio.wait({answering}, timeout=0.02)
        assert (await answering).status == 0


# --- floods ---------------------------------------------------------------------------------------

WORKER_GROWTH_BYTES = 48 * MIB


async def test_a_flood_of_websocket_pings_by_one_who_does_not_read(relay: RelayProcess) -> None:
    """Pongs that a client does not read do not pile up in the worker."""
    (worker,) = relay.worker_pids().values()
    before = psutil.Process(worker).memory_info().rss
    async with bystanders(relay):
        bad = await connect(relay.url, *fresh_twins(1))
        bad.stop_reading()
        ping = b"\x89\xfd" + bytes(4) + bytes(125)
        transport = bad.websocket.transport
        sent_bytes = 0
        deadline = time.monotonic() + 3
        while sent_bytes < 256 * MIB and time.monotonic() < deadline and not transport.is_closing():
            transport.write(ping * 500)
            sent_bytes += 500 * len(ping)
            await asyncio.sleep(0)  # the bystanders live in this process
            while transport.get_write_buffer_size() > MIB and time.monotonic() < deadline:
                await asyncio.sleep(0.001)
        assert psutil.Process(worker).memory_info().rss - before < WORKER_GROWTH_BYTES
        await bad.abort()


async def test_a_flood_of_envelope_pings_by_one_who_does_not_read(relay: RelayProcess) -> None:
    (worker,) = relay.worker_pids().values()
    before = psutil.Process(worker).memory_info().rss
    async with bystanders(relay):
        bad = await connect(relay.url, *fresh_twins(1))
        bad.stop_reading()
        ping = envelopes.ping(bad.key)
        ping.plain = bytes(4096)
        content = ping.SerializeToString()
        deadline = time.monotonic() + 3
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            for _ in range(60_000):
                await asyncio.wait_for(bad.send_bytes(content), deadline - time.monotonic())
        assert psutil.Process(worker).memory_info().rss - before < WORKER_GROWTH_BYTES
        await bad.abort()


async def test_a_flood_of_pings_by_one_who_reads_is_answered(relay: RelayProcess) -> None:
    async with bystanders(relay), session(relay.url, *fresh_twins(1)) as busy:
        pings = [envelopes.ping(busy.key) for _ in range(5_000)]
        pongs = [await busy.start_barrier(ping) for ping in pings]
        await asyncio.wait_for(asyncio.gather(*pongs), 30)
        assert [pong.uid for pong in busy.pongs] == [ping.uid for ping in pings]


async def test_a_flood_to_unknown_twins_holds_back_only_itself(relay: RelayProcess) -> None:
    """Look-ups are bounded per connection; each message is answered in order of arrival."""
    async with bystanders(relay), session(relay.url, *fresh_twins(1)) as bad:
        sent = [await bad.request((number, None)) for number in UNKNOWN[:500]]
        answers = await bad.receive_many(len(sent))
        assert {answer.error.message for answer in answers} == {"unknown twin destination"}
        assert {answer.uid for answer in answers} == {envelope.uid for envelope in sent}


async def test_a_message_for_another_relay_is_handed_on(relay: RelayProcess) -> None:
    async with bystanders(relay), session(relay.url, *fresh_twins(1)) as sender:
        before = relay.counted("relay_messages_federated_total")
        await sender.request((ELSEWHERE_TWIN.id, None))
        await sender.barrier()
        assert sender.inbox.empty()
    await eventually(lambda: relay.counted("relay_messages_federated_total") == before + 1)
