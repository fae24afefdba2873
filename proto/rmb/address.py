"""Addresses of sessions: a twin, and an optional connection name.

A session key anywhere in the code is the tuple `(twin, connection)`. No connection (None) and an
empty one are different sessions, so compare presence, never truthiness.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from proto.rmb import types_pb2 as pb
from proto.rmb.bounds import MAX_CONNECTION_BYTES, MAX_TWIN
from proto.rmb.errors import AddressError, BoundError

SessionKey: TypeAlias = tuple[int, str | None]


class Address(NamedTuple):
    """Source or destination of a message; equal to the plain tuple of the same values."""

    twin: int
    connection: str | None = None

    def __str__(self) -> str:
        return format(self)


def format(key: SessionKey) -> str:
    """Return `<twin>` or `<twin>:<connection>`, which is also the suffix of Redis keys."""
    twin, connection = key
    return str(twin) if connection is None else f"{twin}:{connection}"


def parse(text: str, max_connection_bytes: int = MAX_CONNECTION_BYTES) -> Address:
    """Parse an address, split at the first colon; `7:` is the empty connection of twin 7.

    Raises:
        AddressError: the twin is not a plain decimal number of 32 bits.
        BoundError: the connection is too long.
    """
    twin, colon, connection = text.partition(":")
    if not (twin.isascii() and twin.isdigit() and len(twin) <= len(str(MAX_TWIN))):
        raise AddressError(f"address {_shown(text)} does not start with a twin id")
    if int(twin) > MAX_TWIN:
        raise AddressError(f"twin id {twin} is larger than {MAX_TWIN}")
    if not colon:
        return Address(int(twin))
    try:
        size_bytes = len(connection.encode())
    except UnicodeEncodeError:
        raise AddressError(f"address {_shown(text)} is not valid Unicode") from None
    if size_bytes > max_connection_bytes:
        raise BoundError("connection", size_bytes, max_connection_bytes)
    return Address(int(twin), connection)


def from_message(message: pb.Address) -> Address:
    """Return the address of a protobuf message; an absent one is twin 0."""
    connection = message.connection
    if connection or message.HasField("connection"):
        return Address(message.twin, connection)
    return Address(message.twin)


def to_message(key: SessionKey) -> pb.Address:
    """Return the protobuf message of an address."""
    twin, connection = key
    return pb.Address(twin=twin, connection=connection)


def _shown(text: str) -> str:
    """Quote input for an error message, truncated so that it cannot flood a log."""
    return repr(text[:40] + "..." if len(text) > 40 else text)
