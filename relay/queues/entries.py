"""Stream entries as a session sees them: the envelope of each, and what identifies it."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from proto.rmb.types_pb2 import Envelope

Removal = tuple[bytes, int]
"""Stream id and hash of the content of an entry. After Redis lost data, an id alone no longer
identifies an entry."""

FINGERPRINT_BYTES: Final = 512
"""Bytes of a message that are hashed: hashing a whole large one would cost as much as sending
it."""


def fingerprint(payload: bytes) -> int:
    """Return a hash that distinguishes entries of one stream.

    The start of a message is enough: it contains its uid and times.
    """
    if len(payload) <= FINGERPRINT_BYTES:
        return hash(payload)
    return hash(payload[:FINGERPRINT_BYTES]) ^ len(payload)


def entry_payload(fields: list[bytes]) -> bytes | None:
    """Return the envelope's bytes in a stream entry: field ``_``, mostly the only one."""
    if fields[0] == b"_":
        return fields[1]
    for name, value in zip(fields[::2], fields[1::2], strict=False):
        if name == b"_":
            return value
    return None


def readable(payload: bytes) -> Envelope | None:
    """Return the envelope of an entry; None if the bytes are not an envelope."""
    try:
        return Envelope.FromString(payload)
    except DecodeError:
        return None


def has_expired(envelope: Envelope, entry_id: bytes, now_s: float) -> bool:
    """Check whether the deadline passed while the message waited.

    The sender's clock is not judged: if a message has no time to live, or had none left on arrival
    (the entry's id is the arrival time), only the retention counts.
    """
    if not envelope.expiration:
        return False
    deadline = envelope.timestamp + envelope.expiration
    if deadline > now_s:
        return False
    return bool(int(entry_id.partition(b"-")[0]) / 1000 < deadline)
