"""Sessions on the streams of one connection: positions, room, bounds and ends."""

from __future__ import annotations

import asyncio

import pytest

from proto.limits.addresses import BannedNetworks, read_network
from proto.mux import varint
from proto.mux.events import HalfFailed
from proto.mux.frames import Half
from proto.mux.messages import framed
from proto.rmb.reasons import SessionReason
from proto.websocket.frames import framed_bytes
from relay.mux.stream_socket import State
from relay.server.socket import HIGH_WATER_BYTES
from tests.proto.mux.sides import hexed
from tests.relay.mux.sides import STREAM_BYTES, Pair

MESSAGES = [bytes(10), b"", bytes(100), bytes(300), bytes(2_000)]


async def test_a_message_has_arrived_when_all_of_it_was_read() -> None:
    pair = Pair()
    stream_id, session = await pair.sign_in()
    socket = session.socket
    assert socket.acknowledged() == 0
    assert socket.send_messages(MESSAGES) == framed_bytes(MESSAGES) == socket.written
    await pair.settle()
    whole = [framed_bytes(MESSAGES[:count]) for count in range(len(MESSAGES) + 1)]
    at = 0
    for count, message in enumerate(MESSAGES):
        size = len(framed([message]))
        pair.client.mux.read(stream_id, size - 1)
        await _acknowledge(pair)
        assert socket.acknowledged() == whole[count]
        assert not socket.drained()
        pair.client.mux.read(stream_id, 1)
        await _acknowledge(pair)
        at += size
        assert socket.acknowledged() == whole[count + 1]
    assert socket.drained()
    assert socket.send_messages([b"x"]) == socket.written > socket.acknowledged()


async def _acknowledge(pair: Pair) -> None:
    """Let the client acknowledge what it has read, even small amounts."""
    for stream in pair.client.mux:
        stream.grant()
    await pair.settle()


async def test_what_is_not_read_is_not_sent_and_others_are() -> None:
    pair = Pair()
    slow_id, slow = await pair.sign_in()
    quick_id, quick = await pair.sign_in()
    payload = bytes(1_000)
    slow.rooms = 0
    for _ in range(100):
        slow.socket.send_messages([payload])
    await pair.settle()
    waiting = slow.socket.buffered_bytes()
    assert 100 * 1_002 - STREAM_BYTES <= waiting < 100 * 1_002
    quick.socket.send_messages([payload])
    await pair.settle()
    assert pair.read(quick_id) == [payload]
    assert quick.socket.buffered_bytes() == 0
    assert slow.rooms == 0
    while pair.client.mux.read(slow_id, STREAM_BYTES):
        await pair.settle()
    assert slow.socket.buffered_bytes() == 0
    assert slow.rooms > 0
    assert slow.socket.drained()


async def test_a_full_websocket_takes_nothing_and_is_not_read() -> None:
    pair = Pair()
    stream_id, session = await pair.sign_in()
    pair.wire.unsent = HIGH_WATER_BYTES + 1
    session.socket.send_messages([b"x"])
    await pair.settle()
    assert pair.wire.is_paused
    assert session.socket.buffered_bytes() == 2
    pair.wire.unsent = 0
    pair.relay.writable()
    await pair.settle()
    assert not pair.wire.is_paused
    assert pair.read(stream_id) == [b"x"]


async def test_a_paused_session_holds_what_its_client_may_send() -> None:
    pair = Pair()
    stream_id, session = await pair.sign_in()
    other_id, other = await pair.sign_in()
    session.socket.pause_reading()
    payload = bytes(500)
    pair.client.mux.write(stream_id, framed([payload] * 20))
    pair.client.mux.write(other_id, framed([payload]))
    await pair.settle()
    assert session.messages == []
    assert other.messages == [payload]
    assert pair.relay.buffered_bytes <= STREAM_BYTES
    assert pair.client.mux.queued_bytes >= 20 * 502 - STREAM_BYTES
    session.socket.resume_reading()
    await pair.settle()
    assert session.messages == [payload] * 20


async def test_more_than_may_wait_is_left_in_the_queues() -> None:
    pair = Pair()
    _, session = await pair.sign_in()
    _, idle = await pair.sign_in()
    session.socket.send_messages([bytes(STREAM_BYTES)] * 4)
    await pair.settle()
    assert session.socket.buffered_bytes() < HIGH_WATER_BYTES
    pair.relay.is_over_bounds = True
    assert session.socket.buffered_bytes() > 1 << 30
    assert idle.socket.buffered_bytes() == 0


async def test_incomplete_messages_are_bounded() -> None:
    pair = Pair()
    pair.server.budget.limit_bytes = 5_000
    first_id, first = await pair.sign_in(b"1")
    second_id, second = await pair.sign_in(b"2")
    pair.client.mux.write(first_id, framed([bytes(50_000)])[:4_000])
    await pair.settle()
    assert pair.server.budget.used_bytes >= 4_000
    pair.client.mux.write(second_id, framed([bytes(50_000)])[:2_000])
    await pair.settle()
    assert first.ended == (1013, "too_large")
    assert second.ended is None
    pair.client.mux.abort(second_id)
    await pair.settle()
    assert second.ended == (1000, None)
    assert pair.server.budget.used_bytes == 0


async def test_a_message_that_is_too_large_ends_its_session_only() -> None:
    pair = Pair()
    stream_id, session = await pair.sign_in()
    _, other = await pair.sign_in()
    pair.client.told()
    pair.client.mux.write(stream_id, varint.encode(100_001))
    await pair.settle()
    assert session.ended == (1009, "too_large")
    codes = [each.code for each in pair.client.told() if isinstance(each, HalfFailed)]
    assert codes == [1009, 1009]
    assert other.ended is None


async def test_an_end_waits_until_what_was_sent_is_read() -> None:
    pair = Pair()
    stream_id, session = await pair.sign_in()
    session.socket.send_messages([b"last"])
    session.socket.close(4001, "replaced")
    await pair.settle()
    assert session.ended is None
    assert session.socket.send_messages([b"too late"]) == session.socket.written
    assert pair.read(stream_id) == [b"last"]
    await pair.settle()
    assert session.ended == (4001, None)
    assert session.socket.acknowledged() == framed_bytes([b"last"])
    failed = [each for each in pair.client.told() if isinstance(each, HalfFailed)]
    assert {(each.half, each.code) for each in failed} == {(Half.READ, 4001), (Half.WRITE, 4001)}


async def test_an_end_does_not_wait_for_ever() -> None:
    pair = Pair()
    _, session = await pair.sign_in()
    session.socket.send_messages([b"never read"])
    session.socket.close(4001, "replaced")
    async with asyncio.timeout(5):
        while session.ended is None:
            await asyncio.sleep(0.01)
            await pair.settle()
    assert session.ended == (4001, None)
    assert session.socket.acknowledged() == 0
    assert pair.relay.sockets == {}


async def test_a_session_that_ends_before_its_answer_is_told_of_both() -> None:
    pair = Pair()
    opened = pair.worker.open

    def open_and_close(*arguments: object) -> object:
        session = opened(*arguments)  # type: ignore[arg-type]
        session.socket.close(4001, "replaced")
        return session

    pair.worker.open = open_and_close  # type: ignore[method-assign,assignment]
    _, session = await pair.sign_in()
    assert session.ended == (4001, None)


async def test_a_client_that_leaves_before_its_answer() -> None:
    pair = Pair()
    stream_id = pair.client.mux.open_stream(0)
    pair.client.mux.write(stream_id, framed([b"1"]))
    pair.relay.messages_received(pair.client.mux.data_to_send(0))
    await pair.settle()
    pair.client.mux.abort(stream_id)
    pair.client.mux.cancel(stream_id)
    await pair.settle()
    assert [each.ended for each in pair.worker.sessions] in ([], [(1000, None)])
    assert pair.relay.sockets == {}


async def test_a_refusal_is_answered_and_counted() -> None:
    pair = Pair()
    stream_id = pair.client.mux.open_stream(0)
    pair.client.mux.write(stream_id, framed([b"no"]))
    await pair.settle()
    assert pair.read(stream_id) == [b"403 banned"]
    await pair.settle()
    assert pair.gate.refused == [SessionReason.BANNED]
    assert pair.counts.refused_streams == {SessionReason.BANNED: 1}
    assert pair.relay.sockets == {}


async def test_an_opening_and_a_violation_in_one_read() -> None:
    pair = Pair()
    opening = bytes.fromhex("00000100010000")
    pair.relay.messages_received([opening, bytes.fromhex("000009")])
    assert pair.wire.closed is not None and pair.wire.closed[0] == 1002
    pair.relay.closed(1002, None)
    assert pair.server.connections == {}
    assert pair.counts.ended["malformed"] == 1


async def test_the_end_of_the_connection_ends_all_sessions() -> None:
    pair = Pair()
    sessions = [(await pair.sign_in())[1] for _ in range(3)]
    pair.relay.closed(1006, None)
    await pair.settle()
    assert [each.ended for each in sessions] == [(1006, None)] * 3
    assert all(each.socket.state is State.CLOSED for each in sessions)
    assert pair.server.connections == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("nothing", None),
        ("silent", SessionReason.IDLE),
        ("draining", SessionReason.DRAINED),
        ("banned", SessionReason.ADDRESS_BANNED),
        ("stuck", SessionReason.BACK_PRESSURE),
    ],
)
async def test_connections_without_streams_end(change: str, reason: SessionReason | None) -> None:
    pair = Pair()
    stream_id, _ = await pair.sign_in()
    pair.client.mux.abort(stream_id)
    pair.client.mux.cancel(stream_id)
    await pair.settle()
    assert pair.relay.sockets == {}
    now = asyncio.get_running_loop().time()
    pair.wire.last_received = now
    if change == "silent":
        pair.wire.last_received = pair.relay.empty_since = now - 121
    elif change == "draining":
        pair.worker.draining = True
    elif change == "banned":
        pair.worker.router.banned_addresses = BannedNetworks([read_network("127.0.0.1")])
    elif change == "stuck":
        pair.wire.unsent = HIGH_WATER_BYTES + 1
        assert pair.server.why_end(pair.relay) is None
        pair.worker.bounds.back_pressure_s = 0.0
    assert pair.server.why_end(pair.relay) is reason


async def test_nobody_signed_in_for_too_long() -> None:
    pair = Pair()
    pair.relay.empty_since = asyncio.get_running_loop().time() - 11
    assert pair.server.why_end(pair.relay) is SessionReason.HANDSHAKE_TIMEOUT


async def test_frames_are_those_of_the_protocol() -> None:
    pair = Pair()
    opening = bytes.fromhex("00000100001000")
    pair.relay.messages_received([opening, b"\x00\x00\x00" + framed([b"1"])])
    for _ in range(8):
        await asyncio.sleep(0)
    assert hexed(pair.wire.sent) == ["00000100001000", "00000003313031"]
