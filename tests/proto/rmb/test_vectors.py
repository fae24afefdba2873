"""Messages of released programs give the recorded fields, hash, verdict and plaintext."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from proto.identity.agreement import EncryptionKey
from proto.rmb import challenge, e2e, notices
from proto.rmb import types_pb2 as pb
from proto.rmb.errors import SignatureError
from tests.interop.recorded import recorded

ENVELOPES = recorded("envelopes")
CHANGED = recorded("changed")
BLIND = recorded("blind")


def _parse(entry: dict[str, Any]) -> pb.Envelope:
    return pb.Envelope.FromString(bytes.fromhex(entry["hex"]))


def _fields(envelope: pb.Envelope) -> dict[str, Any]:
    """Return the fields that are set, named as in the vectors."""
    fields: dict[str, Any] = {
        "uid": envelope.uid,
        "timestamp": envelope.timestamp,
        "expiration": envelope.expiration,
        "kind": envelope.WhichOneof("message"),
    }
    for name in ("tags", "schema", "federation"):
        if envelope.HasField(name):
            fields[name] = getattr(envelope, name)
    for name in ("signature", "plain", "cipher"):
        if envelope.HasField(name):
            fields[name] = getattr(envelope, name).hex()
    for name in ("source", "destination"):
        if envelope.HasField(name):
            address = getattr(envelope, name)
            fields[name] = {"twin": address.twin}
            if address.HasField("connection"):
                fields[name]["connection"] = address.connection
    if envelope.HasField("request"):
        fields["command"] = envelope.request.command
    if envelope.HasField("error"):
        fields["code"] = envelope.error.code
        fields["message"] = envelope.error.message
    if envelope.relays:
        fields["relays"] = list(envelope.relays)
    return fields


def test_the_vectors_are_complete() -> None:
    assert (len(ENVELOPES), len(CHANGED), len(BLIND)) == (105, 291, 18)


@pytest.mark.parametrize("entry", ENVELOPES, ids=range(len(ENVELOPES)))
def test_recorded_envelopes(entry: dict[str, Any]) -> None:
    envelope = _parse(entry)
    assert _fields(envelope) == entry["fields"]
    assert challenge.challenge(envelope).hex() == entry["challenge"]
    canonical = envelope.SerializeToString(deterministic=True).hex() == entry["hex"]
    # Field order differs between programs: that is why a relay forwards bytes, not envelopes.
    assert canonical or not entry["canonical"]
    assert pb.Envelope.FromString(envelope.SerializeToString()) == envelope
    if "signer" in entry:
        assert entry["valid"]
        challenge.verify(envelope, bytes.fromhex(entry["signer"]["pubkey"]))
    else:
        with pytest.raises(SignatureError):
            challenge.verify(envelope, bytes(32))
    if "plaintext" in entry:
        shared = EncryptionKey(bytes.fromhex(entry["recipient"]["secret_hex"])).shared_secret(
            bytes.fromhex(entry["sender_pk"])
        )
        assert e2e.decrypt(shared, envelope.cipher).hex() == entry["plaintext"]


@pytest.mark.parametrize("entry", CHANGED, ids=range(len(CHANGED)))
def test_changed_envelopes_are_refused(entry: dict[str, Any]) -> None:
    envelope = _parse(entry)
    assert challenge.challenge(envelope).hex() == entry["challenge"]
    assert not entry["valid"]
    with pytest.raises(SignatureError):
        challenge.verify(envelope, bytes.fromhex(entry["pubkey"]))


@pytest.mark.parametrize("entry", BLIND, ids=range(len(BLIND)))
def test_what_no_signature_sees(entry: dict[str, Any]) -> None:
    """Changes that the signature does not cover are accepted, as by all other implementations.

    These are weaknesses of the protocol; a "fix" would refuse messages that all others accept.
    """
    envelope = _parse(entry)
    assert entry["hex"] != ENVELOPES[entry["of"]]["hex"]
    assert challenge.challenge(envelope).hex() == entry["challenge"]
    assert entry["challenge"] == ENVELOPES[entry["of"]]["challenge"]
    challenge.verify(envelope, bytes.fromhex(entry["pubkey"]))


def test_pongs_are_those_of_the_reference() -> None:
    pings = {e["fields"]["uid"]: e for e in ENVELOPES if e["fields"]["kind"] == "ping"}
    compared = 0
    for entry in ENVELOPES:
        fields = entry["fields"]
        if fields["kind"] == "pong" and fields["uid"] in pings:
            pong = pb.Envelope.FromString(notices.pong(_parse(pings[fields["uid"]])))
            assert _fields(pong) == fields
            compared += 1
    assert compared == len(pings) == 8


def test_error_notices_are_those_of_the_reference() -> None:
    compared = 0
    for entry in ENVELOPES:
        fields = entry["fields"]
        if entry["made_by"] == "rmb-relay" and fields["kind"] == "error":
            to = fields.get("destination")
            if to is None:  # the reference omits it for expired federated messages
                continue
            request = pb.Envelope(uid=fields["uid"])
            request.request.command = "any"
            notice = notices.error_notice(
                request, fields["message"], fields["timestamp"], (to["twin"], to.get("connection"))
            )
            assert _fields(pb.Envelope.FromString(notice)) == fields
            assert fields["message"] in notices.TEXTS.values()
            compared += 1
    assert compared == 10


def test_the_challenge_is_plain_md5() -> None:
    envelope = pb.Envelope(uid="u", tags="t", timestamp=1, expiration=2, schema="s", federation="f")
    envelope.source.twin, envelope.source.connection = 3, "a"
    envelope.destination.twin = 4
    envelope.error.code, envelope.error.message = 5, "m"
    envelope.plain = b"p"
    envelope.relays.extend(["r", "q"])
    expected = hashlib.md5(b"ut123a45msfprq").digest()
    assert challenge.challenge(envelope) == expected
    assert challenge.challenge(pb.Envelope()) == hashlib.md5(b"0000").digest()
