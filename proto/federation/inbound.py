"""The first look at an envelope another relay brought: may it be for us, and who says so?

There is no session it came through, so nothing in it is believed by itself: the destination twin
must be served here, and the signature must be the source twin's. Both need look-ups, which come
after this. Only relays make envelopes without a source, and those are errors: nobody signs them. So
anybody can make one, and it has no more room than such an error needs: it is small, and it carries
no payload.
"""

from __future__ import annotations

from typing import TypeAlias

from google.protobuf.message import DecodeError

from proto.rmb import types_pb2 as pb
from proto.rmb.address import SessionKey, from_message
from proto.rmb.bounds import (
    DEFAULT_BOUNDS,
    MAX_CHARACTER_BYTES,
    MAX_CLOCK_OFF_S,
    MAX_LIFE_S,
    MAX_RELAYS,
    UNCOUNTED_RELAYS_BYTES,
    Bounds,
)
from proto.rmb.fields import COUNTED_BYTES, has_many_fields
from proto.rmb.reasons import MessageReason

_parse = pb.Envelope.FromString


Examined: TypeAlias = tuple[pb.Envelope | None, SessionKey | None, int, MessageReason | None]
"""The verdict on one envelope: envelope, destination, source, reason.

The envelope is None where the bytes are none, or too many fields; the destination only where a
reason says why it is refused. The source is the twin that must have signed it, 0 for an error that
a relay made. A plain tuple, as that of `proto.rmb.inbound`.
"""


def examine(raw: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> Examined:
    """Parses and judges one envelope.

    Args:
        raw: its bytes.
        bounds: sizes the fields may have.
    """
    if not raw:
        return None, None, 0, MessageReason.EMPTY
    if len(raw) > COUNTED_BYTES and has_many_fields(raw):
        return None, None, 0, MessageReason.TOO_LARGE
    try:
        envelope = _parse(raw)
    except DecodeError:
        return None, None, 0, MessageReason.UNPARSABLE
    destination = envelope.destination
    twin, source = destination.twin, envelope.source.twin
    if not twin:
        return envelope, None, source, MessageReason.MISSING_DESTINATION
    key = from_message(destination)
    if _has_large_field(envelope, len(raw), key[1], bounds):
        return envelope, None, source, MessageReason.TOO_LARGE
    if not source:
        if not envelope.HasField("error"):
            return envelope, None, source, MessageReason.BAD_SIGNATURE
        if len(raw) > bounds.notice_bytes:
            return envelope, None, source, MessageReason.TOO_LARGE
        if envelope.plain or envelope.cipher:
            return envelope, None, source, MessageReason.BAD_SIGNATURE
    return envelope, (twin, key[1]), source, None


def is_too_old(timestamp: int, expiration_s: int, now_s: float, retention_s: int) -> bool:
    """Return whether a message is older than its life and what clocks may differ by.

    Without a bound, whoever has read a message could bring it again for ever.

    Args:
        timestamp: of an envelope with a source.
        expiration_s: its own; 0: it names none.
        now_s: unix time.
        retention_s: the life of one that names none.
    """
    life_s = min(expiration_s or retention_s, MAX_LIFE_S)
    return timestamp + life_s + MAX_CLOCK_OFF_S < now_s


def _has_large_field(
    envelope: pb.Envelope, size_bytes: int, connection: str | None, bounds: Bounds
) -> bool:
    # A field is not larger than the envelope, so most envelopes need no look at theirs.
    connection_bytes = bounds.connection_bytes
    if connection and _above(connection, connection_bytes):
        return True
    if (own := envelope.source.connection) and _above(own, connection_bytes):
        return True
    if size_bytes > UNCOUNTED_RELAYS_BYTES and len(envelope.relays) > MAX_RELAYS:
        return True
    if size_bytes <= bounds.unchecked_bytes:
        return False
    return (
        _above(envelope.uid, bounds.uid_bytes)
        or _above(envelope.tags, bounds.tags_bytes)
        or (
            size_bytes > bounds.relays_bytes
            and _above("".join(envelope.relays), bounds.relays_bytes)
        )
    )


def _above(text: str, bound_bytes: int) -> bool:
    return len(text) * MAX_CHARACTER_BYTES > bound_bytes and len(text.encode()) > bound_bytes
