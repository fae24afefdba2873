"""Stream entries as a session sees them: the envelope inside, and what identifies one of them."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError

from proto.rmb.types_pb2 import Envelope

Removal = tuple[bytes, int]
"""Stream id, and hash of the content: after Redis went back in time an id alone says nothing."""

FINGERPRINT_BYTES: Final = 512
"""Hashed of a message: all of a large one would cost as much as sending it."""


def fingerprint(payload: bytes) -> int:
    """Tells entries of one stream apart: the head has the uid and the times of the message."""
    if len(payload) <= FINGERPRINT_BYTES:
        return hash(payload)
    return hash(payload[:FINGERPRINT_BYTES]) ^ len(payload)


def entry_payload(fields: list[bytes]) -> bytes | None:
    """The envelope's bytes in a stream entry: field ``_``, mostly the only one."""
    if fields[0] == b"_":
        return fields[1]
    for name, value in zip(fields[::2], fields[1::2], strict=False):
        if name == b"_":
            return value
    return None


def readable(payload: bytes) -> Envelope | None:
    """The envelope of an entry; None where it is none."""
    try:
        return Envelope.FromString(payload)
    except DecodeError:
        return None


def has_expired(envelope: Envelope, entry_id: bytes, now_s: float) -> bool:
    """Whether the deadline passed while the message waited.

    The sender's clock is not judged: without time to live, or with none left on arrival (the
    entry's id is the arrival time), only the retention counts.
    """
    if not envelope.expiration:
        return False
    deadline = envelope.timestamp + envelope.expiration
    if deadline > now_s:
        return False
    return bool(int(entry_id.partition(b"-")[0]) / 1000 < deadline)
