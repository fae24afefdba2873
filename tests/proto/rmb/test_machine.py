"""Tests of both sides of the protocol, connected in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.limits.window import Excess, Limit, WindowCount
from proto.rmb import challenge, events
from proto.rmb import types_pb2 as pb
from proto.rmb.errors import (
    BoundError,
    CipherError,
    EnvelopeError,
    ExpiredError,
    NoPublicKeyError,
    NotBinaryError,
    NotEnvelopeError,
    SignatureError,
    UnknownTwinError,
)
from proto.rmb.machine import PeerSide, RelaySide
from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.routing import Facts, Step
from proto.rmb.sealing import PeerTwin
from tests.support.identities import TEST_DOMAIN, twin
from tests.support.rmb_pair import NOW, MemoryRelay, drain, known_twin, make_peer, roundtrip

HERE = (TEST_DOMAIN,)
ALICE, BOB, PLAIN_TWIN, ELSEWHERE, NOWHERE = 1, 2, 50, 3, 4
RELAYS = {ALICE: HERE, BOB: HERE, PLAIN_TWIN: HERE, ELSEWHERE: ("other.test",), NOWHERE: ()}


def _relay(*peers: PeerSide) -> MemoryRelay:
    relay = MemoryRelay(RELAYS)
    for peer in peers:
        relay.join(peer)
    return relay


def _request_at(peer: PeerSide) -> events.RequestReceived:
    (event,) = drain(peer)
    assert isinstance(event, events.RequestReceived)
    return event


@pytest.mark.parametrize("connections", [(None, None), ("cli", None), (None, ""), ("", "calc")])
@pytest.mark.parametrize("numbers", [(ALICE, BOB), (ALICE, PLAIN_TWIN), (PLAIN_TWIN, BOB)])
def test_a_request_and_its_response(
    numbers: tuple[int, int], connections: tuple[str | None, str | None]
) -> None:
    # A twin without a published key neither seals payloads nor receives sealed ones.
    asker, server = (
        make_peer(number, connection, sealed=number < PLAIN_TWIN)
        for number, connection in zip(numbers, connections, strict=True)
    )
    relay = _relay(asker, server)
    uid = asker.send_request(server.own, "calc.add", b"[1,2]", NOW, schema="json", tags="a")
    roundtrip(relay)
    request = _request_at(server)
    assert request == events.RequestReceived(
        uid, asker.own, "calc.add", b"[1,2]", "json", "a", NOW + 300
    )
    server.send_response(request, b"3", NOW, "json")
    roundtrip(relay)
    assert drain(asker) == [events.ResponseReceived(uid, server.own, b"3", "json")]
    server.send_error(request, 77, "no such thing", NOW)
    roundtrip(relay)
    # An answer does not use up the request: a second one is delivered too.
    assert drain(asker) == [events.ErrorReceived(uid, server.own, 77, "no such thing", b"")]


def test_payloads_are_sealed_where_both_have_keys() -> None:
    alice = make_peer(ALICE)
    alice.send_request((BOB, None), "c", b"secret", NOW)
    alice.send_request((PLAIN_TWIN, None), "c", b"public", NOW)
    sealed, plain = (pb.Envelope.FromString(data) for data in alice.data_to_send())
    assert len(sealed.cipher) == len(b"secret") + 28
    assert plain.plain == b"public"
    for envelope in (sealed, plain):
        challenge.verify(envelope, twin(ALICE).account)
        assert (envelope.timestamp, envelope.expiration) == (NOW, 300)


def test_uids_are_random_uuids() -> None:
    alice = make_peer(ALICE)
    uids = {alice.send_request((BOB, None), "c", b"", NOW) for _ in range(20)}
    assert len(uids) == 20
    for uid in uids:
        assert [len(part) for part in uid.split("-")] == [8, 4, 4, 4, 12]
        assert uid[14] == "4"
        assert uid[19] in "89ab"


def test_one_uid_for_several_destinations() -> None:
    alice, bob, plain = make_peer(ALICE), make_peer(BOB), make_peer(PLAIN_TWIN, sealed=False)
    relay = _relay(alice, bob, plain)
    uid = alice.send_request(bob.own, "c", b"", NOW)
    assert alice.send_request(plain.own, "c", b"", NOW, uid=uid, expiration_s=400) == uid
    roundtrip(relay)
    for server in (bob, plain):
        server.send_response(_request_at(server), b"x", NOW)
    roundtrip(relay)
    assert [event.source for event in drain(alice)] == [bob.own, plain.own]  # type: ignore[union-attr]
    alice.handle_timer(NOW + 399)
    assert drain(alice) == []
    alice.handle_timer(NOW + 10_000)
    assert drain(alice) == [events.RequestExpired(uid, 2)]
    assert alice.next_timer() is None


def test_requests_expire() -> None:
    alice = make_peer(ALICE)
    late = alice.send_request((BOB, None), "c", b"", NOW, expiration_s=99_999)
    soon = alice.send_request((BOB, None), "c", b"", NOW, expiration_s=5)
    assert alice.next_timer() == NOW + 5
    alice.handle_timer(NOW + 4)
    assert drain(alice) == []
    alice.handle_timer(NOW + 5)
    assert drain(alice) == [events.RequestExpired(soon, 0)]
    assert alice.next_timer() == NOW + 1800, "clamped"
    alice.handle_timer(NOW + 1800)
    assert drain(alice) == [events.RequestExpired(late, 0)]


def test_pending_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proto.rmb.machine.MAX_PENDING_REQUESTS", 2)
    alice = make_peer(ALICE)
    for _ in range(2):
        alice.send_request((BOB, None), "c", b"", NOW)
    with pytest.raises(BoundError, match="pending requests has 3 entries, at most 2"):
        alice.send_request((BOB, None), "c", b"", NOW)
    alice.handle_timer(NOW + 300)
    alice.send_request((BOB, None), "c", b"", NOW)


def test_an_absent_session_gets_its_mail_in_order() -> None:
    alice, bob = make_peer(ALICE), make_peer(BOB, "calc")
    relay = _relay(alice)
    sent = [alice.send_request(bob.own, "c", b"%d" % number, NOW) for number in range(5)]
    roundtrip(relay)
    assert drain(bob) == []
    relay.join(bob)
    roundtrip(relay)
    assert [event.uid for event in drain(bob)] == sent


def test_a_stray_answer_is_unmatched() -> None:
    alice, bob = make_peer(ALICE), make_peer(BOB)
    relay = _relay(alice, bob)
    request = events.RequestReceived("stray", alice.own, "c", b"", None, None, NOW + 300)
    bob.send_response(request, b"", NOW)
    bob.send_error(request, 1, "x", NOW)
    roundtrip(relay)
    assert drain(alice) == [events.EnvelopeUnmatched("stray", bob.own)] * 2


def test_an_answer_after_the_deadline_is_unmatched() -> None:
    alice, bob = make_peer(ALICE), make_peer(BOB)
    relay = _relay(alice, bob)
    uid = alice.send_request(bob.own, "c", b"", NOW, expiration_s=5)
    roundtrip(relay)
    request = _request_at(bob)
    bob.send_response(request, b"", NOW + 5)
    roundtrip(relay, NOW + 5)
    assert drain(alice) == [events.EnvelopeUnmatched(uid, bob.own)]


def test_ping() -> None:
    alice = make_peer(ALICE, "ts")
    relay = _relay(alice)
    uid = alice.send_ping(NOW)
    roundtrip(relay)
    assert drain(alice) == [events.PongReceived(uid)]
    assert relay.events == [events.PingAnswered(uid)]


@pytest.mark.parametrize(
    ("number", "text"),
    [(NOWHERE, "relay info is not set for this twin"), (9, "unknown twin destination")],
)
def test_relay_errors_reach_the_sender(number: int, text: str) -> None:
    alice = make_peer(ALICE, "cli")
    relay = _relay(alice)
    uid = alice.send_request((number, None), "c", b"", NOW)
    roundtrip(relay)
    assert drain(alice) == [events.ErrorReceived(uid, None, 0, text, b"")]
    # Only requests are answered.
    answered = events.RequestReceived("r", make_peer(number).own, "c", b"", None, None, NOW + 300)
    alice.send_response(answered, b"", NOW)
    roundtrip(relay)
    assert drain(alice) == []
    assert [type(event) for event in relay.events] == [events.EnvelopeRefused] * 2


def test_fail_fast() -> None:
    alice, bob = make_peer(ALICE), make_peer(BOB)
    relay = _relay(alice)
    uid = alice.send_request(bob.own, "c", b"", NOW, tags="fail-fast")
    roundtrip(relay)
    assert drain(alice) == [events.ErrorReceived(uid, None, 0, "destination offline", b"")]
    relay.join(bob)
    alice.send_request(bob.own, "c", b"", NOW, tags="fail-fast")
    roundtrip(relay)
    assert _request_at(bob).tags == "fail-fast"


def test_bytes_are_forwarded_untouched() -> None:
    alice, bob = make_peer(ALICE), make_peer(BOB)
    relay = _relay(alice)
    alice.send_request((ELSEWHERE, None), "c", b"", NOW)
    alice.send_request(bob.own, "c", b"", NOW)
    federated, queued = (data + b"\xfa\x3f\x03abc" for data in alice.data_to_send())
    _, side = relay.sessions[alice.own]
    side.receive_data(federated, NOW)
    side.receive_data(queued, NOW)
    roundtrip(relay)
    assert relay.federated == [federated]
    assert relay.queues[bob.own] == [queued]


def test_a_message_with_the_wrong_source_is_refused_to_its_session() -> None:
    alice, bob = make_peer(ALICE, "a"), make_peer(BOB)
    relay = _relay(alice)
    _, side = relay.sessions[alice.own]
    bob.send_request((BOB, "x"), "c", b"", NOW)
    (data,) = bob.data_to_send()
    side.receive_data(data, NOW)
    (notice,) = map(pb.Envelope.FromString, side.data_to_send())
    assert notice.error.message == "message wrong source"
    assert (notice.destination.twin, notice.destination.connection) == alice.own
    event = side.next_event()
    assert isinstance(event, events.EnvelopeRefused)
    assert event.reason is MessageReason.WRONG_SOURCE


def test_fatal_input_ends_the_session() -> None:
    for reason in ("unparsable", "text_frame"):
        alice = make_peer(ALICE)
        side = _relay(alice).join(alice)
        if reason == "unparsable":
            side.receive_data(b"x", NOW)
        else:
            side.receive_text()
        side.receive_data(_damaged("nothing"), NOW)
        side.receive_text()
        refused, failed = side.next_event(), side.next_event()
        assert isinstance(refused, events.EnvelopeRefused)
        assert refused.reason is MessageReason(reason)
        assert failed == events.SessionFailed(SessionReason(reason))
        assert side.next_event() is None, "nothing is taken after it"
        assert side.data_to_send() == []


def test_an_empty_message_is_dropped_alone() -> None:
    alice = make_peer(ALICE)
    side = _relay(alice).join(alice)
    side.receive_data(b"", NOW)
    assert side.next_event() == events.EnvelopeRefused(MessageReason.EMPTY, None, 0)
    assert side.next_event() is None


def test_facts_that_are_missing_are_left_to_the_owner() -> None:
    alice = make_peer(ALICE)
    side = RelaySide(alice.own, frozenset(HERE), lambda key: Facts())
    alice.send_request((BOB, None), "c", b"", NOW)
    (data,) = alice.data_to_send()
    side.receive_data(data, NOW)
    event = side.next_event()
    assert isinstance(event, events.EnvelopeAccepted)
    assert event.step is Step.LOOK_UP


def test_the_limit_comes_before_other_verdicts() -> None:
    count = WindowCount()
    limit = Limit(messages=1, size_bytes=1000)

    def admit(size_bytes: int, now: float) -> Excess | None:
        return count.admit(size_bytes, limit, now)

    alice = make_peer(ALICE)
    relay = MemoryRelay(RELAYS, admit)
    relay.join(alice)
    alice.send_request((NOWHERE, None), "c", b"", NOW)
    alice.send_request((NOWHERE, None), "c", b"", NOW)
    alice.send_request((NOWHERE, None), "c", bytes(1001), NOW)
    roundtrip(relay)
    assert [event.message for event in drain(alice)] == [  # type: ignore[union-attr]
        "relay info is not set for this twin",
        "exceeded rate limits, dropping message",
        "exceeded rate limits, dropping message",
    ]
    assert [event.reason for event in relay.events] == [  # type: ignore[union-attr]
        MessageReason.NO_RELAY,
        MessageReason.LIMIT_COUNT,
        MessageReason.LIMIT_SIZE,
    ]


# Answers of a peer to requests that it cannot use: codes and texts of rmb-peer 1.5.


def _damaged(what: str) -> bytes:
    """Return a request from Alice to Bob with one thing wrong."""
    alice = make_peer(ALICE, "raw")
    alice.send_request((BOB, None), "c", b"payload", NOW, expiration_s=60)
    (data,) = alice.data_to_send()
    envelope = pb.Envelope.FromString(data)
    key = twin(ALICE).signing_key
    match what:
        case "expired":
            envelope.timestamp = NOW - 60
        case "unknown twin":
            envelope.source.twin = 99_999
        case "changed":
            envelope.request.command = "d"
        case "unsigned":
            envelope.ClearField("signature")
        case "short signature":
            envelope.signature = envelope.signature[1:]
        case "bad cipher":
            envelope.cipher = envelope.cipher[:-1]
            challenge.sign(envelope, key)
        case "short cipher":
            envelope.cipher = bytes(27)
            challenge.sign(envelope, key)
    return envelope.SerializeToString()


@pytest.mark.parametrize(
    ("what", "error_type", "code", "text"),
    [
        ("expired", ExpiredError, 102, "envelope validation error: message has expired"),
        ("unknown twin", UnknownTwinError, 103, "unknown twin id '99999'"),
        (
            "changed",
            SignatureError,
            104,
            "invalid envelope signature: sr25519 signature verification failed",
        ),
        ("unsigned", SignatureError, 104, "invalid envelope signature: message is not signed"),
        (
            "short signature",
            SignatureError,
            104,
            "invalid envelope signature: invalid signature length, expected: 65, found: 64",
        ),
        ("bad cipher", CipherError, 106, "e2e error: invalid cipher data"),
        ("short cipher", CipherError, 106, "e2e error: invalid cipher data"),
    ],
)
def test_a_bad_request_is_answered(
    what: str, error_type: type[EnvelopeError], code: int, text: str
) -> None:
    bob = make_peer(BOB)
    data = _damaged(what)
    bob.receive_data(data, NOW)
    (event,) = drain(bob)
    assert isinstance(event, events.EnvelopeRejected)
    assert type(event.error) is error_type
    (answer,) = map(pb.Envelope.FromString, bob.data_to_send())
    request = pb.Envelope.FromString(data)
    assert (answer.error.code, answer.error.message) == (code, text)
    assert (answer.uid, answer.expiration, answer.timestamp) == (request.uid, 60, NOW)
    assert (answer.source.twin, answer.destination) == (BOB, request.source)
    challenge.verify(answer, twin(BOB).account)
    if what == "unknown twin":
        assert answer.WhichOneof("payload") is None
    else:
        assert len(answer.cipher) == 28, "an empty payload, sealed"


@pytest.mark.parametrize("kind", ["response", "error", "ping", "pong"])
def test_what_is_bad_and_no_request_is_not_answered(kind: str) -> None:
    bob = make_peer(BOB)
    envelope = pb.Envelope.FromString(_damaged("unsigned"))
    getattr(envelope, kind).SetInParent()
    bob.receive_data(envelope.SerializeToString(), NOW)
    (event,) = drain(bob)
    assert isinstance(event, events.EnvelopeRejected)
    assert bob.data_to_send() == []


@pytest.mark.parametrize("pk", [None, bytes(33), b"short"])
def test_a_sealed_request_of_a_twin_without_a_usable_key(pk: bytes | None) -> None:
    account = twin(ALICE).account
    bob = make_peer(BOB, look_up=lambda number: PeerTwin(account, pk))
    bob.receive_data(_damaged("nothing"), NOW)
    (event,) = drain(bob)
    assert isinstance(event, events.EnvelopeRejected)
    assert type(event.error) is (NoPublicKeyError if pk is None else CipherError)
    (answer,) = map(pb.Envelope.FromString, bob.data_to_send())
    assert answer.error.code == (105 if pk is None else 106)
    assert answer.WhichOneof("payload") is None


def test_a_sealed_request_to_a_peer_without_a_key() -> None:
    bob = make_peer(BOB, sealed=False)
    bob.receive_data(_damaged("nothing"), NOW)
    (event,) = drain(bob)
    assert isinstance(event, events.EnvelopeRejected)
    assert isinstance(event.error, CipherError)


def test_input_that_nobody_can_be_told_of() -> None:
    bob = make_peer(BOB)
    bob.receive_data(b"x", NOW)
    bob.receive_text()
    not_envelope, not_binary = drain(bob)
    assert isinstance(not_envelope, events.EnvelopeRejected)
    assert isinstance(not_envelope.error, NotEnvelopeError)
    assert not_envelope.error.code == 101
    assert isinstance(not_binary, events.EnvelopeRejected)
    assert isinstance(not_binary.error, NotBinaryError)
    assert not_binary.error.code == 100
    assert bob.data_to_send() == []


def test_only_errors_and_pongs_may_come_without_a_source() -> None:
    bob = make_peer(BOB)
    uid = bob.send_request((ALICE, None), "c", b"", NOW)
    for kind in ("request", "response"):
        envelope = pb.Envelope(uid=uid, timestamp=NOW, expiration=60)
        getattr(envelope, kind).SetInParent()
        bob.receive_data(envelope.SerializeToString(), NOW)
    assert [str(event.error) for event in drain(bob)] == ["unknown twin id '0'"] * 2  # type: ignore[union-attr]
    # Only a relay can send as twin 0. A pong that names another twin must be signed by that twin,
    # and even then it does not answer a ping.
    pong = pb.Envelope.FromString(_damaged("nothing"))
    pong.pong.SetInParent()
    challenge.sign(pong, twin(ALICE).signing_key)
    bob.receive_data(pong.SerializeToString(), NOW)
    assert drain(bob) == [events.EnvelopeUnmatched(pong.uid, make_peer(ALICE, "raw").own)]


def test_stale_and_stray_relay_errors_are_dropped() -> None:
    alice = make_peer(ALICE)
    uid = alice.send_request((BOB, None), "c", b"", NOW, expiration_s=10)
    for timestamp, error_uid in ((NOW - 300, uid), (NOW, "stray"), (NOW + 10, uid)):
        notice = pb.Envelope(uid=error_uid, timestamp=timestamp, expiration=300)
        notice.error.message = "x"
        alice.receive_data(notice.SerializeToString(), max(timestamp, NOW))
    stale, stray, late = drain(alice)
    assert isinstance(stale, events.EnvelopeRejected)
    assert isinstance(stray, events.EnvelopeUnmatched)
    assert isinstance(late, events.EnvelopeUnmatched)


def test_twins_that_are_gone() -> None:
    alice = make_peer(ALICE)
    with pytest.raises(UnknownTwinError, match="unknown twin id '500'"):
        alice.send_request((500, None), "c", b"", NOW)
    assert alice.next_timer() is None
    assert alice.data_to_send() == []
    assert known_twin(500) is None


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_at_both_sides(messages: list[bytes]) -> None:
    alice, bob = make_peer(ALICE), make_peer(BOB)
    side = MemoryRelay(RELAYS).join(alice)
    for data in messages:
        side.receive_data(data, NOW)
        bob.receive_data(data, NOW)
    while side.next_event() is not None:
        pass
    for data in side.data_to_send() + bob.data_to_send():
        pb.Envelope.FromString(data)
