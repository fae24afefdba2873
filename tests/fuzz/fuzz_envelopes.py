"""Fuzz the reading of envelopes: random bytes, damaged envelopes, random fields, odd wire forms.

A relay gives one verdict on any bytes from a client, and a peer one event for any bytes from a
relay; both answer only with envelopes. After any damage the signature no longer fits, unless the
challenge does not cover the damaged part.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from proto.rmb import challenge, events
from proto.rmb import types_pb2 as pb
from proto.rmb.address import from_message
from proto.rmb.bounds import DEFAULT_BOUNDS
from proto.rmb.errors import SignatureError
from proto.rmb.inbound import examiner
from proto.rmb.outline import destination_of
from proto.rmb.reasons import MessageReason
from tests.fuzz.damage import damaged
from tests.interop.recorded import recorded
from tests.support.identities import TEST_DOMAIN
from tests.support.rmb_pair import NOW, MemoryRelay, drain, make_peer

MAX_RANDOM_BYTES = 300

_RECORDED = [
    (bytes.fromhex(entry["hex"]), bytes.fromhex(entry["signer"]["pubkey"]))
    for entry in recorded("envelopes")
    if "signer" in entry
]
_KINDS = ["request", "response", "error", "ping", "pong"]
_TEXTS = ["", "a", "fail-fast", "é:ü 1", "\x00", "x" * 129, "y" * 300, "\U0001f600" * 40]
_NUMBERS = [0, 1, NOW - 1, NOW, NOW + 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]
_TAG_BYTES = bytes(range(0x08, 0x90))


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("envelopes: random bytes", _random_bytes),
        ("envelopes: damaged", _damaged),
        ("envelopes: random fields", _random_fields),
        ("envelopes: odd wire forms", _odd_wire_forms),
    ]


def _check(data: bytes) -> pb.Envelope | None:
    """Feed the bytes to both sides, and check what they guarantee for any input."""
    envelope, destination, reason, detail = examiner((1, None))(data)
    assert reason is None or destination is None
    assert detail is None or reason is MessageReason.TOO_LARGE
    assert envelope is not None or reason is not None
    parsed = None if reason is MessageReason.UNPARSABLE else pb.Envelope.FromString(data)
    # Use the source that the message names: a fixed one would match one message in four billion.
    origin = from_message(parsed.source) if parsed else (1, None)
    source = parsed.source.SerializeToString() if parsed else b"\x08\x01"
    key = destination_of(data, source, DEFAULT_BOUNDS)
    assert key is None or examiner(origin)(data)[1:] == (key, None, None)

    relay = MemoryRelay({1: (TEST_DOMAIN,), 2: ()})
    sender = make_peer(origin[0], origin[1], look_up=lambda number: None)
    side = relay.join(sender)
    side.receive_data(data, NOW)
    event = side.next_event()
    assert event is not None, "every message has its verdict"
    assert isinstance(side.next_event(), events.SessionFailed | None)
    answers = side.data_to_send()
    if isinstance(event, events.EnvelopeAccepted):
        assert event.data == data
        assert answers == []
    for answer in answers:
        assert parsed is not None
        made = pb.Envelope.FromString(answer)
        assert len(answer) <= len(data) + 500, "no answer is much larger than its cause"
        assert made.uid == parsed.uid
        assert made.HasField("pong") or parsed.HasField("request")

    peer = make_peer(2)
    peer.receive_data(data, NOW)
    assert len(drain(peer)) == 1
    for answer in peer.data_to_send():
        assert pb.Envelope.FromString(answer).HasField("error")
        assert parsed is not None
        assert parsed.HasField("request")
    return parsed


def _random_bytes(rng: random.Random) -> None:
    _check(rng.randbytes(rng.randrange(MAX_RANDOM_BYTES)))


def _damaged(rng: random.Random) -> None:
    original, account = rng.choice(_RECORDED)
    data = damaged(rng, original, times=rng.randint(1, 3), longest_cut_bytes=8)
    envelope = _check(data)
    if envelope is None:
        return
    before = challenge.challenge(pb.Envelope.FromString(original))
    try:
        challenge.verify(envelope, account)
    except SignatureError:
        return
    assert challenge.challenge(envelope) == before, "a damaged envelope is not validly signed"


def _random_fields(rng: random.Random) -> None:
    envelope = pb.Envelope(
        uid=rng.choice(_TEXTS),
        tags=rng.choice([None, *_TEXTS, "t" * 1025]),
        timestamp=rng.choice(_NUMBERS),
        expiration=rng.choice(_NUMBERS),
        source=_address(rng),
        destination=_address(rng),
        signature=rng.choice([None, b"", rng.randbytes(64), b"s" + rng.randbytes(64)]),
        schema=rng.choice([None, *_TEXTS]),
        federation=rng.choice([None, *_TEXTS]),
        relays=rng.choices(_TEXTS, k=rng.randrange(4)),
    )
    if (kind := rng.choice([None, *_KINDS])) is not None:
        getattr(envelope, kind).SetInParent()
    if (payload := rng.choice([None, "plain", "cipher"])) is not None:
        setattr(envelope, payload, rng.randbytes(rng.choice([0, 1, 27, 28, 100])))
    data = envelope.SerializeToString()
    assert (_check(data) or pb.Envelope()) == envelope


def _address(rng: random.Random) -> pb.Address | None:
    if rng.random() < 0.1:
        return None
    twin = rng.choice([0, 1, 2, 3, 2**32 - 1])
    return pb.Address(twin=twin, connection=rng.choice([None, None, *_TEXTS]))


def _odd_wire_forms(rng: random.Random) -> None:
    """Check fields with wrong types, repeated, nested, cut, with overlong numbers, or unknown."""
    data = bytearray()
    for _ in range(rng.randint(1, 12)):
        data.append(rng.choice(_TAG_BYTES))
        match rng.randrange(4):
            case 0:
                data += bytes([0x80] * rng.randrange(11) + [rng.randrange(128)])
            case 1:
                inner = rng.randbytes(rng.randrange(12))
                data += bytes([len(inner)]) + inner
            case 2:
                part, _ = rng.choice(_RECORDED)
                part = part[: rng.randrange(127)]
                data += bytes([len(part)]) + part
            case _:
                data += rng.choice(_RECORDED)[0]
    _check(bytes(data))
