"""First checks of a message from a session: whether it may be routed, and to which session.

This runs for every message that a relay handles, so it must cost little more than parsing. Reading
a field of a parsed envelope costs a tenth of a microsecond. So only the fields that decide are
read, and sizes of fields are checked only if the message without its payload is large enough to
exceed their bounds.

The later steps depend on external state: the limit of the twin (which is checked before this result
is acted upon), the connected sessions, and the relays that a twin lists; see `routing.py`.
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
"""The result for one message: envelope, destination, reason, detail.

If there is a reason, refuse the message. Otherwise, if there is a destination, route it to that
session. If there is neither, it is a ping, to be answered with `notices.pong`. The envelope is
`None` if an answer could not refer to anything, because the message is unparsable or empty. That
of a message with too many fields has only the first small ones, and a uid that is too long to be
repeated is empty. The detail is an error text for the sender that replaces the reason's own text.

It is a plain tuple, because a named tuple makes the whole examination a tenth slower."""

COPIED_BYTES: Final = 4096
"""Size above which the payload is not read, because that copies it: checking uid, tags and relays
is then cheaper."""

_MANY_FIELDS: Final = f"envelope has more than {MAX_FIELDS} fields"


def examiner(
    origin: SessionKey,
    bounds: Bounds = DEFAULT_BOUNDS,
    parse: Callable[[bytes], pb.Envelope] = pb.Envelope.FromString,
) -> Callable[[bytes], Examined]:
    """Return the function that examines the messages of one session.

    It is a closure, so that everything that is the same for each message is available without a
    look-up.

    Args:
        origin: session that the messages come from.
        bounds: maximum sizes of the fields.
        parse: parser like `Envelope.FromString`, see `blocks.py`.

    Returns:
        Function that parses and examines one binary message, in the order of the reference relay
        (rmb-rs 1.5).
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
        # Most of a large message is payload: the rest alone is then too small to exceed a bound.
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

        # Equal as a whole, or, if the address has unknown fields, in the known ones.
        if envelope.source != expected and not _is_from(envelope.source, origin):
            return envelope, None, MessageReason.WRONG_SOURCE, None

        if envelope.HasField("ping"):
            return envelope, None, None, None

        # An absent field reads as its default: presence is checked only where it makes a
        # difference.
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
    """Raise BoundError if a text takes more bytes than allowed."""
    if len(text) * MAX_CHARACTER_BYTES > bound_bytes:
        size_bytes = len(text.encode())
        if size_bytes > bound_bytes:
            raise BoundError(field, size_bytes, bound_bytes)


def _judge_size(envelope: pb.Envelope, raw: bytes, bounds: Bounds) -> Examined | None:
    """Refuse empty messages and those with a field above its bound."""
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
    """Return the part of an envelope with too many fields that an answer can refer to."""
    try:
        return _repeatable(pb.Envelope.FromString(first_fields(raw)))
    except DecodeError:
        return None


def _repeatable(envelope: pb.Envelope) -> pb.Envelope:
    if len(envelope.uid.encode()) > MAX_REPEATED_UID_BYTES:
        envelope.uid = ""
    return envelope
