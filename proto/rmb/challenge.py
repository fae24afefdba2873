"""What is signed of an envelope, and its signature.

The challenge is the md5 of the envelope's fields, concatenated without separators in the order
rmb-rs 1.5 hashes them (`rmb::types`, trait `Challengeable`). Presence counts: a field that is set
and empty adds nothing to the hash by itself, but absent and empty are kept apart in addresses,
where a connection changes who is meant. The md5 is fixed by the protocol; its weaknesses (no
separators, plain and cipher alike) are recorded in `tests/interop/vectors/rmb_blind.json`.
"""

from __future__ import annotations

import hashlib

from proto.identity import errors as identity_errors
from proto.identity import signing
from proto.rmb import types_pb2 as pb
from proto.rmb.errors import SignatureError


def challenge(envelope: pb.Envelope) -> bytes:
    """Returns the 16 bytes that are signed."""
    source, destination = envelope.source, envelope.destination
    # Of what is not a request the command reads as empty: cheaper than asking for the kind first.
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
    """Sets the signature; every other field must have its final value."""
    envelope.signature = key.sign(challenge(envelope))


def verify(envelope: pb.Envelope, account: bytes) -> None:
    """Checks the signature against the account of the source twin.

    Raises:
        SignatureError: not signed, not well-formed, or not signed by that account.
    """
    if not envelope.HasField("signature"):
        raise SignatureError("message is not signed")
    try:
        signing.verify(account, challenge(envelope), envelope.signature)
    except identity_errors.SignatureError as error:
        raise SignatureError(str(error)) from None
