"""Messages of released clients and gateways are opened step by step, and written again alike.

The envelopes were recorded from the Go and TypeScript clients and from rmb-peer 1.5, which sealed
and signed them; the secrets are test data.
"""

from __future__ import annotations

from typing import Any

import pytest

from proto.identity.agreement import EncryptionKey
from proto.identity.signing import SigningKey
from proto.rmb import opening, writing
from proto.rmb import types_pb2 as pb
from proto.rmb.address import from_message
from proto.rmb.errors import ExpiredError, SignatureError
from proto.rmb.repeats import Repeats
from proto.rmb.sealing import PeerTwin, Sealer
from tests.interop.recorded import recorded

SIGNED = [entry for entry in recorded("envelopes") if "signer" in entry]


def receiver_of(entry: dict[str, Any]) -> Sealer:
    """Return a sealer with the keys of the message's recipient."""
    secret = bytes.fromhex(entry["recipient"]["secret_hex"]) if "recipient" in entry else b"\1" * 32
    return Sealer((0, None), SigningKey.from_mini_secret(secret), EncryptionKey(secret), bytes)


def sender_of(entry: dict[str, Any]) -> PeerTwin:
    pk = entry.get("sender_pk")
    return PeerTwin(bytes.fromhex(entry["signer"]["pubkey"]), bytes.fromhex(pk) if pk else None)


def test_there_is_something_to_compare() -> None:
    assert len(SIGNED) == 76
    assert {entry["made_by"] for entry in SIGNED} == {"go", "ts", "rmb-peer"}


@pytest.mark.parametrize("entry", SIGNED, ids=range(len(SIGNED)))
def test_theirs_is_opened(entry: dict[str, Any]) -> None:
    envelope = opening.parse(bytes.fromhex(entry["hex"]))
    sealer, sender, now = receiver_of(entry), sender_of(entry), envelope.timestamp
    assert not opening.is_from_relay(envelope)
    payload = opening.open_envelope(envelope, sender, sealer, now)
    assert payload.hex() == entry.get("plaintext", envelope.plain.hex())
    with pytest.raises(ExpiredError):
        opening.open_envelope(envelope, sender, sealer, now + envelope.expiration)
    with pytest.raises(SignatureError):
        opening.open_envelope(envelope, PeerTwin(b"\7" * 32, sender.pk), sealer, now)
    repeats = Repeats()
    deadline = now + envelope.expiration
    seen = [repeats.seen(envelope.signature, deadline, now) for _ in range(2)]
    assert seen == [False, True]


@pytest.mark.parametrize("entry", SIGNED, ids=range(len(SIGNED)))
def test_ours_is_theirs(entry: dict[str, Any]) -> None:
    """The same values give the same message, signed over the same challenge."""
    theirs = opening.parse(bytes.fromhex(entry["hex"]))
    kind = theirs.WhichOneof("message")
    if kind == "request":
        written = writing.request(theirs.request.command)
    elif kind == "response":
        written = writing.RESPONSE
    else:
        written = writing.error(theirs.error.code, theirs.error.message)
    body = None
    if theirs.HasField("cipher"):
        body = writing.Body(theirs.cipher, True)
    elif theirs.HasField("plain"):
        body = writing.Body(theirs.plain, False)
    challenges = []

    def sign(message: bytes) -> bytes:
        challenges.append(message.hex())
        return theirs.signature

    ours = writing.signed(
        sign,
        theirs.uid,
        writing.source(from_message(theirs.source)),
        from_message(theirs.destination),
        written,
        theirs.timestamp,
        theirs.expiration,
        body,
        theirs.tags if theirs.HasField("tags") else None,
        theirs.schema if theirs.HasField("schema") else None,
    )
    # Only the Go and TypeScript clients still set these two fields.
    bare = pb.Envelope()
    bare.CopyFrom(theirs)
    bare.ClearField("federation")
    bare.ClearField("relays")
    assert opening.parse(ours) == bare
    if bare == theirs:
        assert challenges == [entry["challenge"]]
