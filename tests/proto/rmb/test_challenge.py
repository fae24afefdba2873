"""Tests of signing and verifying, beyond the recorded vectors."""

from __future__ import annotations

import pytest
from hypothesis import given

from proto.identity.signing import KeyType, SigningKey
from proto.rmb import challenge
from proto.rmb import types_pb2 as pb
from proto.rmb.errors import SignatureError
from tests.proto.rmb.strategies import envelopes

KEYS = [SigningKey.from_mini_secret(bytes([7] * 32), key_type) for key_type in KeyType]  # TEST KEYS


@given(envelopes())
def test_both_kinds_of_keys_sign_anything(envelope: pb.Envelope) -> None:
    for key in KEYS:
        challenge.sign(envelope, key)
        assert len(envelope.signature) == 65
        challenge.verify(envelope, key.account)
        challenge.verify(pb.Envelope.FromString(envelope.SerializeToString()), key.account)


@given(envelopes())
def test_the_signature_is_no_part_of_the_challenge(envelope: pb.Envelope) -> None:
    before = challenge.challenge(envelope)
    envelope.signature = b"other"
    assert challenge.challenge(envelope) == before
    assert len(before) == 16


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        (None, "message is not signed"),
        (b"", "invalid signature length, expected: 65, found: 0"),
        (bytes(64), "invalid signature length, expected: 65, found: 64"),
        (b"s" + bytes(64), "sr25519 signature verification failed"),
        (b"e" + b"\xff" * 64, "ed25519 signature verification failed"),
    ],
)
def test_texts_of_bad_signatures(signature: bytes | None, text: str) -> None:
    envelope = pb.Envelope(uid="u", signature=signature)
    with pytest.raises(SignatureError) as caught:
        challenge.verify(envelope, KEYS[0].account)
    assert str(caught.value) == f"invalid envelope signature: {text}"
    assert caught.value.code == 104
