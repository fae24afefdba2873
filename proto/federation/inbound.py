"""First checks of an envelope from a partner relay: is it for this relay, and which twin sent it?

The envelope did not come through a session, so its contents are not trusted: this relay must serve
the destination twin, and the signature must be the source twin's. Both need look-ups, which come
after these checks. Only relays create envelopes without a source; those are errors, and they are
not signed. As any client can forge them, they are limited to what such an error needs: a small size
and no payload.
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
"""The result for one envelope: envelope, destination, source, reason.

The envelope is `None` if the bytes are not one or have too many fields. The destination is `None`
only if there is a reason, which says why the envelope is refused. The source is the twin that must
have signed it, 0 for an error that a relay made. It is a plain tuple, like that of
`proto.rmb.inbound`.
"""


def examine(raw: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> Examined:
    """Parse and check one envelope.

    Args:
        raw: bytes of the envelope.
        bounds: maximum sizes of its fields.
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
    """Return whether a message is older than its lifetime plus the difference that clocks may have.

    Without this bound, any program that has read a message could replay it for ever.

    Args:
        timestamp: time stamp of an envelope with a source, in Unix seconds.
        expiration_s: its expiration; 0 if it has none.
        now_s: Unix time.
        retention_s: lifetime of a message without an expiration.
    """
    life_s = min(expiration_s or retention_s, MAX_LIFE_S)
    return timestamp + life_s + MAX_CLOCK_OFF_S < now_s


def _has_large_field(
    envelope: pb.Envelope, size_bytes: int, connection: str | None, bounds: Bounds
) -> bool:
    # A field is not larger than the envelope, so the fields of most envelopes need no check.
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
