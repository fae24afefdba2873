"""The first look at a message a session sent to its relay: may it be routed, and where to?

This runs for every message a relay handles, so it costs little more than the parsing. Reading a
field of a parsed envelope costs a tenth of a microsecond, so only what decides is read, and sizes
of fields are looked at only where what is not payload is large enough to break their bounds.

What follows needs to know the world: the limit of the twin (which is judged before this verdict is
acted upon), who is connected, and which relays a twin names; see `routing.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from proto.rmb import types_pb2 as pb
from proto.rmb.address import SessionKey
from proto.rmb.bounds import (
    DEFAULT_BOUNDS,
    MAX_CHARACTER_BYTES,
    MAX_FIELDS,
    MAX_RELAYS,
    MAX_REPEATED_UID_BYTES,
    UNCOUNTED_RELAYS_BYTES,
    Bounds,
)
from proto.rmb.errors import BoundError
from proto.rmb.fields import COUNTED_BYTES, first_fields, has_many_fields
from proto.rmb.reasons import MessageReason

Examined: TypeAlias = tuple[pb.Envelope | None, SessionKey | None, MessageReason | None, str | None]
"""The verdict on one message: envelope, destination, reason, detail.

With a reason, refuse it. Otherwise, with a destination, route it to that session. With neither it
is a ping, to be answered with `notices.pong`. The envelope is None where an answer could not refer
to anything: the message is unparsable or empty. One with too many fields has its first small ones,
and a uid that is too long to be repeated is empty.
The detail is what to tell the sender instead of the reason's own text.

A plain tuple, to be unpacked: a named one costs a tenth more of the whole examination.
"""

COPIED_BYTES: Final = 4096
"""Reading a payload copies it: above this, a look at uid, tags and relays is cheaper."""

_MANY_FIELDS: Final = f"envelope has more than {MAX_FIELDS} fields"


def examiner(
    origin: SessionKey,
    bounds: Bounds = DEFAULT_BOUNDS,
    parse: Callable[[bytes], pb.Envelope] = pb.Envelope.FromString,
) -> Callable[[bytes], Examined]:
    """The examination of what one session sends.

    A closure, since all that is the same for each message is then at hand without a look-up.

    Args:
        origin: the session its messages come from.
        bounds: sizes the fields may have.
        parse: as `Envelope.FromString`, see `blocks.py`.

    Returns:
        Parses and judges one binary message, in the order of the reference relay (rmb-rs 1.5).
    """
    expected = pb.Address(twin=origin[0], connection=origin[1])
    unchecked_bytes = bounds.unchecked_bytes
    looked_at_bytes = min(unchecked_bytes, UNCOUNTED_RELAYS_BYTES)
    longest_connection = bounds.connection_bytes // MAX_CHARACTER_BYTES

    def examine(raw: bytes) -> Examined:
        size_bytes = len(raw)
        if size_bytes > COUNTED_BYTES and has_many_fields(raw):
            return _beginning(raw), None, MessageReason.TOO_LARGE, _MANY_FIELDS
        try:
            envelope = parse(raw)
        except DecodeError:
            return None, None, MessageReason.UNPARSABLE, None
        # Most of a large message is its payload: the rest alone is then too small to break a bound.
        if not size_bytes or size_bytes > looked_at_bytes:
            rest_bytes = size_bytes
            if size_bytes <= COPIED_BYTES:
                rest_bytes -= len(envelope.plain or envelope.cipher)
            if (
                rest_bytes > unchecked_bytes
                or not size_bytes
                or (rest_bytes > UNCOUNTED_RELAYS_BYTES and len(envelope.relays) > MAX_RELAYS)
            ):
                refusal = _judge_size(envelope, raw, bounds)
                if refusal is not None:
                    return refusal

        # Equal as a whole, or, where it has fields we do not know, in those that we do.
        if envelope.source != expected and not _is_from(envelope.source, origin):
            return envelope, None, MessageReason.WRONG_SOURCE, None

        if envelope.HasField("ping"):
            return envelope, None, None, None

        # A field left out reads as its default: presence is asked only where it makes a difference.
        destination = envelope.destination
        twin = destination.twin
        if not twin:
            return envelope, None, MessageReason.MISSING_DESTINATION, None
        connection: str | None = destination.connection
        if not connection:
            if not destination.HasField("connection"):
                connection = None
        elif len(connection) > longest_connection:
            try:
                _check_size("destination.connection", connection, bounds.connection_bytes)
            except BoundError as error:
                return envelope, None, MessageReason.TOO_LARGE, str(error)
        return envelope, (twin, connection), None, None

    return examine


def _is_from(source: pb.Address, origin: SessionKey) -> bool:
    connection = source.connection if source.HasField("connection") else None
    return (source.twin, connection) == origin


def _check_size(field: str, text: str, bound_bytes: int) -> None:
    """Raises BoundError when text takes more bytes than allowed."""
    if len(text) * MAX_CHARACTER_BYTES > bound_bytes:
        size_bytes = len(text.encode())
        if size_bytes > bound_bytes:
            raise BoundError(field, size_bytes, bound_bytes)


def _judge_size(envelope: pb.Envelope, raw: bytes, bounds: Bounds) -> Examined | None:
    """Refuses empty messages and those with a field above its bound."""
    if not raw:
        return None, None, MessageReason.EMPTY, None
    try:
        _check_size("uid", envelope.uid, bounds.uid_bytes)
        _check_size("tags", envelope.tags, bounds.tags_bytes)
        if relays := envelope.relays:
            if len(relays) > MAX_RELAYS:
                raise BoundError("relays", len(relays), MAX_RELAYS, "entries")
            if len(raw) > bounds.relays_bytes:
                _check_size("relays", "".join(relays), bounds.relays_bytes)
    except BoundError as error:
        return _repeatable(envelope), None, MessageReason.TOO_LARGE, str(error)
    return None


def _beginning(raw: bytes) -> pb.Envelope | None:
    """What an answer to an envelope with too many fields can refer to."""
    try:
        return _repeatable(pb.Envelope.FromString(first_fields(raw)))
    except DecodeError:
        return None


def _repeatable(envelope: pb.Envelope) -> pb.Envelope:
    if len(envelope.uid.encode()) > MAX_REPEATED_UID_BYTES:
        envelope.uid = ""
    return envelope
