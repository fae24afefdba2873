"""The first look at a message a session sent to its relay: may it be routed, and where to?

This runs for every message a relay handles, so it costs little more than the parsing: about two
microseconds for 256 bytes. Reading a field of a parsed envelope costs about a tenth of one, so
only what decides is read, and sizes of fields are looked at only in messages large enough to break
their bounds.

What follows needs to know the world: the limit of the twin (which is judged before this verdict is
acted upon), who is connected, and which relays a twin names; see `routing.py`.
"""

from __future__ import annotations

from typing import TypeAlias

from google.protobuf.message import DecodeError

from proto.rmb import types_pb2 as pb
from proto.rmb.address import SessionKey
from proto.rmb.bounds import DEFAULT_BOUNDS, MAX_CHARACTER_BYTES, Bounds
from proto.rmb.errors import BoundError
from proto.rmb.reasons import MessageReason

Examined: TypeAlias = tuple[pb.Envelope | None, SessionKey | None, MessageReason | None, str | None]
"""The verdict on one message: envelope, destination, reason, detail.

With a reason, refuse it. Otherwise, with a destination, route it to that session. With neither it
is a ping, to be answered with `notices.pong`. The envelope is None where an answer could not refer
to anything: the message is unparsable, empty, or its uid is above the bound. The detail is what to
tell the sender instead of the reason's own text.

A plain tuple, to be unpacked: a named one costs a tenth more of the whole examination.
"""

_parse = pb.Envelope.FromString


def examine(origin: SessionKey, raw: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> Examined:
    """Parses and judges one binary message, in the order of the reference relay (rmb-rs 1.5).

    Args:
        origin: the session it came from.
        raw: the message.
        bounds: sizes the fields may have.
    """
    try:
        envelope = _parse(raw)
    except DecodeError:
        return None, None, MessageReason.UNPARSABLE, None
    if len(raw) > bounds.unchecked_bytes or not raw:
        refusal = _judge_size(envelope, raw, bounds)
        if refusal is not None:
            return refusal

    # A field left out reads as its default, so presence is asked only where it makes a difference.
    source = envelope.source
    connection: str | None = source.connection
    if not connection and not source.HasField("connection"):
        connection = None
    if connection != origin[1] or source.twin != origin[0]:
        return envelope, None, MessageReason.WRONG_SOURCE, None

    if envelope.HasField("ping"):
        return envelope, None, None, None

    destination = envelope.destination
    twin = destination.twin
    if not twin:
        return envelope, None, MessageReason.MISSING_DESTINATION, None
    connection = destination.connection
    if not connection:
        if not destination.HasField("connection"):
            connection = None
    elif len(connection) * MAX_CHARACTER_BYTES > bounds.connection_bytes:
        try:
            _check_size("destination.connection", connection, bounds.connection_bytes)
        except BoundError as error:
            return envelope, None, MessageReason.TOO_LARGE, str(error)
    return envelope, (twin, connection), None, None


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
        # First the uid: an answer to anything else repeats it.
        _check_size("uid", envelope.uid, bounds.uid_bytes)
    except BoundError as error:
        return None, None, MessageReason.TOO_LARGE, str(error)
    try:
        _check_size("tags", envelope.tags, bounds.tags_bytes)
        if len(raw) > bounds.relays_bytes and (relays := envelope.relays):
            _check_size("relays", "".join(relays), bounds.relays_bytes)
    except BoundError as error:
        return envelope, None, MessageReason.TOO_LARGE, str(error)
    return None
