"""The challenge of an envelope, which is what its sender signs, and the signature.

The challenge is the md5 of the envelope's fields, concatenated without separators in the order in
which rmb-rs 1.5 hashes them (`rmb::types`, trait `Challengeable`). Absent and empty fields add
nothing to the hash, even in addresses, where an absent connection and an empty one mean different
sessions. The protocol prescribes md5; the weaknesses (no separators, plain and cipher treated
alike) are recorded in `tests/interop/vectors/rmb_blind.json`.
"""

from __future__ import annotations

import hashlib

from proto.identity import errors as identity_errors
from proto.identity import signing
from proto.rmb import types_pb2 as pb
from proto.rmb.errors import SignatureError


def challenge(envelope: pb.Envelope) -> bytes:
    """Return the 16 bytes that are signed."""
    source, destination = envelope.source, envelope.destination
    # The command of any other kind reads as empty, which is cheaper than checking the kind first.
    content = envelope.request.command
    if not content and envelope.HasField("error"):
        content = f"{envelope.error.code}{envelope.error.message}"
    # Absent text reads as empty and adds nothing either way; an absent address counts as twin 0,
    # as in rmb-rs and the TypeScript client.
    text = (
        f"{envelope.uid}{envelope.tags}{envelope.timestamp}{envelope.expiration}"
        f"{source.twin}{source.connection}{destination.twin}{destination.connection}"
        f"{content}{envelope.schema}{envelope.federation}"
    )
    # At most one of plain and cipher is set.
    parts = [text.encode(), envelope.plain, envelope.cipher]
    if relays := envelope.relays:
        parts.append("".join(relays).encode())
    # Not for secrecy: `usedforsecurity` keeps it working where policy forbids md5 otherwise.
    return hashlib.md5(b"".join(parts), usedforsecurity=False).digest()


def sign(envelope: pb.Envelope, key: signing.SigningKey) -> None:
    """Set the signature; every other field must have its final value."""
    envelope.signature = key.sign(challenge(envelope))


def verify(envelope: pb.Envelope, account: bytes) -> None:
    """Check the signature against the account of the source twin.

    Raises:
        SignatureError: not signed, malformed, or not signed by that account.
    """
    if not envelope.HasField("signature"):
        raise SignatureError("message is not signed")
    try:
        signing.verify(account, challenge(envelope), envelope.signature)
    except identity_errors.SignatureError as error:
        raise SignatureError(str(error)) from None
