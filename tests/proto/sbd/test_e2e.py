"""Tests of the encrypted layer: recorded streams, both directions, loss, and dishonest peers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings

from proto.sbd.bounds import MAX_PLAINTEXT_BYTES, PEER_IDLE_NS, RENEWAL_PAUSE_NS
from proto.sbd.e2e import REQUEST_NEW_STREAM, EndToEnd, MessageReceived
from proto.sbd.errors import MessageSizeError, PeerError, TooManyPeersError
from tests.interop.recorded import recorded_sbd
from tests.proto.sbd.pairs import Identity

VECTORS = recorded_sbd()
E2E = VECTORS["e2e"]
A, B, C = Identity(1), Identity(2), Identity(3)
ASK = bytes((REQUEST_NEW_STREAM,))


def counting(size: int, numbers: itertools.count[int] = itertools.count()) -> bytes:  # noqa: B008
    return next(numbers).to_bytes(size, "big")


def side(identity: Identity, **options: object) -> EndToEnd:
    return EndToEnd(identity.secret, counting, listener=True, **options)  # type: ignore[arg-type]


def carry(source: Identity, sender: EndToEnd, receiver: EndToEnd, now: int = 0) -> list[bytes]:
    """Deliver the packets that a side has to send, and return the messages that result."""
    for _key, payload in sender.data_to_send():
        receiver.receive_packet(source.key, payload, now)
    return messages(receiver)


def messages(receiver: EndToEnd) -> list[bytes]:
    found = []
    while (event := receiver.next_event()) is not None:
        assert isinstance(event, MessageReceived)
        found.append(event.message)
    return found


def recorded_identity(name: str) -> tuple[bytes, bytes]:
    seed = next(each["seed"] for each in VECTORS["keys"] if each["name"] == name)
    key, secret = bindings.crypto_sign_seed_keypair(bytes.fromhex(seed))
    return key, secret


def test_recorded_stream_is_made_and_opened() -> None:
    a_key, a_secret = recorded_identity(E2E["from"])
    b_key, b_secret = recorded_identity(E2E["to"])
    header = bytes.fromhex(E2E["stream_header"])
    sender = EndToEnd(a_secret, lambda size: header)
    receiver = EndToEnd(b_secret, counting, listener=True)
    texts = [
        bytes.fromhex(each["plaintext"]) for each in E2E["payloads"] if each["kind"] == "message"
    ]
    for text in texts:
        sender.send(b_key, text, 0)
    sent = [payload for _, payload in sender.data_to_send()]
    recorded = [bytes.fromhex(each["payload"]) for each in E2E["payloads"]]
    assert sent == recorded[:-1]  # the last one asks for a new stream
    for payload in recorded:
        receiver.receive_packet(a_key, payload, 0)
    assert messages(receiver) == texts


@given(st.lists(st.tuples(st.booleans(), st.binary(max_size=200)), max_size=12))
def test_messages_both_ways(steps: list[tuple[bool, bytes]]) -> None:
    sides = {True: (A, B, side(A)), False: (B, A, side(B))}
    for forth, text in steps:
        own, other, sender = sides[forth]
        sender.send(other.key, text, 0)
        assert carry(own, sender, sides[not forth][2]) == [text]


def test_sizes() -> None:
    sender, receiver = side(A), side(B)
    sender.send(B.key, bytes(MAX_PLAINTEXT_BYTES), 0)
    assert carry(A, sender, receiver) == [bytes(MAX_PLAINTEXT_BYTES)]
    with pytest.raises(MessageSizeError, match="limit: 19950"):
        sender.send(B.key, bytes(MAX_PLAINTEXT_BYTES + 1), 0)


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_after_a_loss_a_new_stream_begins(lost: list[bool]) -> None:
    """After a loss, the messages that arrive are in order, and the last message always arrives."""
    sender, receiver = side(A), side(B)
    received, now = [], 0
    for number, gone in enumerate(lost):
        now += RENEWAL_PAUSE_NS
        sender.send(B.key, bytes([number]), now)
        for _key, payload in sender.data_to_send():
            if not gone:
                receiver.receive_packet(A.key, payload, now)
        received += messages(receiver)
        carry(B, receiver, sender, now)
    for number in (100, 101):
        now += RENEWAL_PAUSE_NS
        sender.send(B.key, bytes([number]), now)
        received += carry(A, sender, receiver, now)
        carry(B, receiver, sender, now)
    assert received == sorted(received)
    assert received[-1] == bytes([101])


def test_a_message_without_stream_asks_for_one_but_not_each_time() -> None:
    sender, receiver = side(A), side(B)
    for number in range(5):
        sender.send(B.key, bytes([number]), 0)
    for _, payload in sender.data_to_send()[1:]:
        receiver.receive_packet(A.key, payload, 0)
    assert messages(receiver) == []
    assert receiver.data_to_send() == [(A.key, ASK)]
    sender.receive_packet(B.key, ASK, 0)
    sender.send(B.key, b"again", 0)
    assert carry(A, sender, receiver) == [b"again"]


@pytest.mark.parametrize("payload", [b"", b"\x11", b"\x11" + bytes(16), b"\x10", b"\x12x", b"\xff"])
def test_malformed_payloads_change_no_stream(payload: bytes) -> None:
    sender, receiver = side(A), side(B)
    sender.send(B.key, b"before", 0)
    assert carry(A, sender, receiver) == [b"before"]
    receiver.receive_packet(A.key, payload, 0)
    sender.send(B.key, b"after", 0)
    assert carry(A, sender, receiver) == [b"after"]


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_any_payload_is_taken(payloads: list[bytes]) -> None:
    receiver = side(B)
    for payload in payloads:
        receiver.receive_packet(A.key, payload, 0)
    assert len(receiver.data_to_send()) <= 1


def test_who_does_not_listen_ignores_strangers() -> None:
    sender, receiver = side(A), EndToEnd(B.secret, counting)
    sender.send(B.key, b"hello", 0)
    assert carry(A, sender, receiver) == []
    assert receiver.active_peers(0) == []
    assert receiver.data_to_send() == []
    receiver.open(A.key, 0)
    sender.receive_packet(B.key, ASK, 0)
    sender.send(B.key, b"hello", 0)
    assert carry(A, sender, receiver) == [b"hello"]


def test_peers_have_a_bound_and_idle_ones_make_room() -> None:
    sender = side(A, max_peers=1)
    sender.send(B.key, b"", 0)
    with pytest.raises(TooManyPeersError, match="1 peers"):
        sender.send(C.key, b"", PEER_IDLE_NS - 1)
    sender.receive_packet(C.key, ASK, PEER_IDLE_NS - 1)
    assert sender.active_peers(PEER_IDLE_NS - 1) == [B.key]
    sender.send(C.key, b"", PEER_IDLE_NS)
    assert sender.active_peers(PEER_IDLE_NS) == [C.key]
    sender.close_peer(C.key)
    assert sender.active_peers(PEER_IDLE_NS) == []


@pytest.mark.parametrize(
    "key", [b"\x01" + bytes(31), bytes(32), A.key], ids=["small", "zero", "own"]
)
def test_keys_nobody_can_encrypt_for(key: bytes) -> None:
    sender = side(A)
    with pytest.raises(PeerError):
        sender.send(key, b"", 0)
    sender.receive_packet(key, ASK, 0)
    assert sender.active_peers(0) == []
