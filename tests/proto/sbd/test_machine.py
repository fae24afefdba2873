"""Tests of both sides: the handshake, what drops a connection, the pace, and silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.sbd import frames
from proto.sbd.bounds import MAX_MESSAGE_BYTES, MAX_WAITING_BYTES
from proto.sbd.errors import ClosedError, DropReason, MessageSizeError
from proto.sbd.events import Authenticated, Connected, Dropped, Ended, PacketReceived
from proto.sbd.machine import ClientSide, ServerSide, State
from proto.sbd.rate import ByteRate
from tests.interop.recorded import recorded_sbd
from tests.proto.sbd.pairs import NONCE, Identity, Pair, events_of, ready

A, B = Identity(1), Identity(2)
NONE = frames.ZEROS + b"none" + bytes(17)
S = 1_000_000_000


def started(key: bytes = A.key, rate: ByteRate | None = None) -> ServerSide:
    server = ServerSide(key, NONCE, (rate or ByteRate()).charge)
    server.start(8_000, 0)
    return server


def dropped(server: ServerSide) -> DropReason | None:
    """Return why the server dropped the connection, or None if nothing happened.

    Check that there was no other event, and that the server sends nothing more.
    """
    events = events_of(server)
    if not events:
        return None
    assert server.state is State.ENDED
    assert server.data_to_send() == []
    assert server.next_timer() is None
    (event,) = events
    assert isinstance(event, Dropped)
    return event.reason


def test_handshake() -> None:
    pair = Pair()
    pair.server.start(8_000, pair.now)
    limit, request = pair.server.data_to_send()
    assert limit == frames.limit_byte_nanos(8_000)
    assert request == frames.auth_request(NONCE)
    for message in (limit, request):
        pair.client.receive_data(message, pair.now)
    (response,) = pair.client.data_to_send(pair.now)
    pair.server.receive_data(response, pair.now)
    assert pair.server_events() == [Authenticated()]
    # Only these two, in this order: a client closes the connection if either comes later.
    idle, is_ready = pair.server.data_to_send()
    assert idle == frames.limit_idle(10_000)
    assert is_ready == frames.READY
    for message in (idle, is_ready):
        pair.client.receive_data(message, pair.now)
    assert pair.client_events() == [Connected(8_000, 10_000)]


@pytest.mark.parametrize("login", recorded_sbd()["logins"], ids=lambda login: login["key"])
def test_recorded_log_ins(login: dict[str, str]) -> None:
    keys = {each["name"]: bytes.fromhex(each["public_key"]) for each in recorded_sbd()["keys"]}
    server = ServerSide(keys[login["key"]], bytes.fromhex(login["nonce"]), ByteRate().charge)
    server.start(8_000, 0)
    assert server.data_to_send()[1] == bytes.fromhex(login["areq"])
    server.receive_data(bytes.fromhex(login["ares"]), 0)
    assert events_of(server) == [Authenticated()]


def test_packets_both_ways() -> None:
    pair = Pair()
    pair.connect()
    pair.server_events(), pair.client_events()
    pair.client.send(B.key, b"hello")
    pair.wait_until(pair.now + S)
    assert pair.server_events() == [PacketReceived(B.key, b"hello")]
    pair.client.receive_data(frames.forward(B.key, b"world"), pair.now)
    assert pair.client_events() == [PacketReceived(B.key, b"world")]


# --- what a server drops ----------------------------------------------------------------------


def test_a_key_that_cannot_be_addressed_is_dropped_with_nothing_sent() -> None:
    assert dropped(started(bytes(28) + b"abcd")) is DropReason.ILLEGAL_KEY


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (frames.auth_response(bytes(64)), DropReason.BAD_SIGNATURE),
        (frames.auth_response(B.sign(NONCE)), DropReason.BAD_SIGNATURE),
        (frames.auth_response(A.sign(bytes(32))), DropReason.BAD_SIGNATURE),
        (frames.auth_response(bytes(63)), DropReason.BAD_RESPONSE),
        (frames.forward(B.key, b"early"), DropReason.EARLY_FORWARD),
        (b"", DropReason.TOO_SHORT),
        (bytes(31), DropReason.TOO_SHORT),
        (bytes(MAX_MESSAGE_BYTES + 1), DropReason.TOO_LARGE),
    ],
)
def test_the_first_fault_of_a_handshake_ends_it(message: bytes, reason: DropReason) -> None:
    server = started()
    assert server.receive_messages([message], 0) == []
    assert dropped(server) is reason
    # Later packets are not relayed under the claimed key.
    late = [frames.auth_response(A.sign(NONCE)), frames.forward(B.key, b"spoofed")]
    assert server.receive_messages(late, 0) == []
    assert events_of(server) == []


@pytest.mark.parametrize(
    "ignored",
    [NONE, frames.KEEP_ALIVE, frames.READY, frames.limit_idle(1), frames.auth_request(b"")],
)
def test_other_commands_are_ignored_before_and_after(ignored: bytes) -> None:
    server = started()
    server.data_to_send()
    server.receive_data(ignored, 0)
    server.receive_data(frames.auth_response(A.sign(NONCE)), 0)
    assert events_of(server) == [Authenticated()]
    server.data_to_send()
    server.receive_data(ignored, 0)
    assert events_of(server) == []
    assert server.data_to_send() == []
    assert server.state is State.READY


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (frames.auth_response(A.sign(NONCE)), DropReason.SECOND_RESPONSE),
        (frames.auth_response(b""), DropReason.BAD_RESPONSE),
        (bytes(31), DropReason.TOO_SHORT),
        (B.key.ljust(MAX_MESSAGE_BYTES + 1, b"\0"), DropReason.TOO_LARGE),
    ],
)
def test_what_ends_a_connection(message: bytes, reason: DropReason) -> None:
    server = ready()
    before, after = frames.forward(B.key, b"before"), frames.forward(B.key, b"after")
    assert server.receive_messages([before, message, after], 0) == [before]
    assert dropped(server) is reason


def test_the_largest_and_the_empty_packet_pass() -> None:
    server = ready()
    packets = [B.key.ljust(MAX_MESSAGE_BYTES, b"x"), B.key]
    assert server.receive_messages(packets, 0) == packets


def test_a_small_order_key_signs_nothing() -> None:
    """A small-order key cannot sign in; the reference accepts this signature for any nonce."""
    key = b"\x01" + bytes(31)
    server = started(key)
    server.receive_data(frames.auth_response(key + bytes(32)), 0)
    assert dropped(server) is DropReason.BAD_SIGNATURE


def test_the_rate_limit_drops_the_one_that_goes_over() -> None:
    server = ready(rate=ByteRate(8_000, 97))
    packets = [frames.forward(B.key, b"1"), frames.forward(B.key, b"2"), B.key, B.key]
    assert server.receive_messages(packets, 0) == packets[:2]
    assert dropped(server) is DropReason.RATE_LIMIT


def test_the_rate_limit_holds_in_the_handshake() -> None:
    server = started(rate=ByteRate(8_000, 95))
    server.receive_data(frames.auth_response(A.sign(NONCE)), 0)
    assert dropped(server) is DropReason.RATE_LIMIT


def test_an_oversize_message_is_not_charged() -> None:
    rate = ByteRate()
    ready(rate=rate).receive_data(bytes(MAX_MESSAGE_BYTES + 1), 0)
    assert rate.is_idle(0)


def test_a_changed_limit_is_told_once() -> None:
    server = ready()
    server.announce(8_000)
    assert server.data_to_send() == []
    server.announce(16_000)
    server.announce(16_000)
    assert server.data_to_send() == [frames.limit_byte_nanos(16_000)]


# --- time -------------------------------------------------------------------------------------


def test_a_handshake_has_one_deadline_in_all() -> None:
    server = started()
    for second in range(10):
        server.receive_data(frames.KEEP_ALIVE, second * S)
    server.handle_timer(10 * S - 1)
    assert dropped(server) is None
    server.handle_timer(10 * S)
    assert dropped(server) is DropReason.HANDSHAKE_TIMEOUT


def test_any_message_puts_silence_off() -> None:
    server = ready()
    for message in (frames.KEEP_ALIVE, NONE, B.key):
        deadline = server.next_timer()
        assert deadline is not None
        server.receive_data(message, deadline - 1)
        server.handle_timer(deadline)
        assert server.state is State.READY
    events_of(server)
    deadline = server.next_timer()
    assert deadline is not None
    server.handle_timer(deadline)
    assert dropped(server) is DropReason.IDLE


def test_a_client_keeps_its_connection() -> None:
    pair = Pair(idle_ms=1_000)
    pair.connect()
    pair.sent.clear()
    pair.wait_until(pair.now + 20 * S)
    assert pair.server.state is State.READY
    assert set(pair.sent) == {frames.KEEP_ALIVE}
    assert len(pair.sent) == 40


@given(
    st.lists(st.integers(0, 4_000), min_size=1, max_size=40),
    st.integers(1, 100_000),
)
def test_a_paced_client_is_never_over_the_limit(sizes: list[int], byte_nanos: int) -> None:
    """A paced client stays within the limit, even if the burst allows only a single message."""
    pair = Pair(rate=ByteRate(byte_nanos, 4_096))
    pair.server.start(byte_nanos, pair.now)
    pair.exchange()
    pair.server_events()
    for size in sizes:
        pair.client.send(B.key, bytes(size))
    pair.exchange()
    pair.wait_until(pair.now + (sum(sizes) + 200 * len(sizes) + 4_000) * byte_nanos * 2 + S)
    events = pair.server_events()
    received = [event.payload for event in events if isinstance(event, PacketReceived)]
    assert received == [bytes(size) for size in sizes]
    assert len(events) == len(received)


def test_a_client_follows_a_new_limit() -> None:
    pair = Pair()
    pair.connect()
    pair.client.receive_data(frames.limit_byte_nanos(1_000_000), pair.now)
    pair.wait_until(pair.now + S)
    pair.client.send(B.key, bytes(68))
    pair.client.send(B.key, bytes(68))
    pair.exchange()
    pair.sent.clear()
    pair.wait_until(pair.now + 109_000_000)
    assert pair.sent == []
    pair.wait_until(pair.now + 1_000_000)
    assert len(pair.sent) == 1


# --- a client ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (frames.limit_idle(1_000), "the server sent lidl after it was ready"),
        (frames.auth_request(NONCE), "the server sent areq after it was ready"),
        (bytes(31), "message of 31 bytes, at least 32"),
        (frames.LIMIT_BYTE_NANOS, "lbrt of 32 bytes, expected 36"),
    ],
)
def test_a_server_that_breaks_the_protocol(message: bytes, text: str) -> None:
    pair = Pair()
    pair.connect()
    pair.client_events()
    pair.client.receive_data(message, pair.now)
    assert pair.client_events() == [Ended(text)]
    with pytest.raises(ClosedError):
        pair.client.send(B.key, b"")


@pytest.mark.parametrize("message", [frames.READY, NONE, frames.READY + b"tail"])
def test_what_a_client_ignores(message: bytes) -> None:
    pair = Pair()
    pair.connect()
    pair.client_events()
    pair.client.receive_data(message, pair.now)
    assert pair.client_events() == []


def test_a_packet_before_the_server_is_ready_ends_a_client() -> None:
    client = ClientSide(A.sign, 0)
    client.receive_data(frames.forward(B.key, b""), 0)
    assert isinstance(client.next_event(), Ended)


def test_a_client_without_limits_assumes_the_defaults() -> None:
    client = ClientSide(A.sign, 0)
    client.receive_data(frames.READY, 0)
    assert client.next_event() == Connected(8_000, 10_000)


def test_packets_wait_up_to_a_bound() -> None:
    pair = Pair()
    with pytest.raises(ClosedError):
        pair.client.send(B.key, b"")
    pair.connect()
    with pytest.raises(MessageSizeError):
        pair.client.send(B.key, bytes(MAX_MESSAGE_BYTES))
    count = 0
    while pair.client.has_room:
        pair.client.send(B.key, bytes(9_968))
        count += 1
    assert count == MAX_WAITING_BYTES // 10_000
    pair.wait_until(pair.now + S)
    assert pair.client.has_room


# --- any input --------------------------------------------------------------------------------

ANY_MESSAGE = st.one_of(
    st.binary(max_size=100),
    st.sampled_from([NONE, frames.KEEP_ALIVE, frames.READY, frames.limit_byte_nanos(5)]),
    st.just(frames.auth_response(A.sign(NONCE))),
    st.binary(max_size=80).map(frames.ZEROS.__add__),
    st.binary(max_size=80).map(B.key.__add__),
)


@given(st.lists(ANY_MESSAGE, max_size=8), st.lists(st.integers(1, 8), max_size=8))
def test_any_input_relays_only_what_was_signed_for(messages: list[bytes], cuts: list[int]) -> None:
    """Packets are relayed only after a signature; the outcome is the same however input is cut."""
    whole, parts = started(), started()
    packets = whole.receive_messages(messages, 0)
    rest, cut_packets = list(messages), []
    for cut in [*cuts, len(messages)]:
        cut_packets += parts.receive_messages(rest[:cut], 0)
        rest = rest[cut:]
    assert packets == cut_packets
    assert whole.state is parts.state
    events = events_of(whole)
    assert events == events_of(parts)
    if packets:
        assert events[0] == Authenticated()
        assert frames.auth_response(A.sign(NONCE)) in messages


@given(st.lists(ANY_MESSAGE, max_size=8))
def test_any_input_of_a_server_is_taken_or_ends_the_client(messages: list[bytes]) -> None:
    client = ClientSide(A.sign, 0)
    for message in messages:
        client.receive_data(message, 0)
    client.data_to_send(0)
    ends = 0
    while (event := client.next_event()) is not None:
        ends += isinstance(event, Ended)
    assert ends == (client.state is State.ENDED)
