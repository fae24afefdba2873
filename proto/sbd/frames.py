"""Encoding and decoding of SBD messages, each of which is one websocket message (sheet section 1).

The first 32 bytes are a public key, or a command: 28 zero bytes and a name of four. Integers are
signed, 32 bits, big-endian. A server reads with `parse_from_client`, a client with
`parse_from_server`; each makes the length checks that the reference makes.
"""

from __future__ import annotations

import binascii
import re
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Final, NamedTuple

from proto.sbd.bounds import (
    COMMAND_ZEROS,
    HEADER_BYTES,
    KEY_BYTES,
    MAX_INT,
    MAX_MESSAGE_BYTES,
    MAX_PAYLOAD_BYTES,
    NONCE_BYTES,
    PATH_CHARS,
    SIGNATURE_BYTES,
)
from proto.sbd.errors import DropReason, FrameError, KeyFormatError, MessageSizeError

if TYPE_CHECKING:
    from argparse import ArgumentParser

ZEROS: Final = bytes(COMMAND_ZEROS)
LIMIT_BYTE_NANOS: Final = ZEROS + b"lbrt"
LIMIT_IDLE_MS: Final = ZEROS + b"lidl"
AUTH_REQUEST: Final = ZEROS + b"areq"
AUTH_RESPONSE: Final = ZEROS + b"ares"
READY: Final = ZEROS + b"srdy"
KEEP_ALIVE: Final = ZEROS + b"keep"

_INT: Final = struct.Struct(">i")
_PATH: Final = re.compile(rf"[A-Za-z0-9_-]{{{PATH_CHARS}}}")
_DASHED_PATH: Final = re.compile(rf"(?=-){_PATH.pattern}$")


class Forward(NamedTuple):
    """A packet.

    Attributes:
        key: key of the destination on the way to a server, of the source on the way from it.
        payload: at most `MAX_PAYLOAD_BYTES`.
    """

    key: bytes
    payload: bytes


class LimitByteNanos(NamedTuple):
    """Time that a client must take to send each byte, in nanoseconds."""

    byte_nanos: int


class LimitIdle(NamedTuple):
    """Silence after which the server drops a connection, in milliseconds."""

    idle_ms: int


class AuthRequest(NamedTuple):
    """Nonce that a client must sign."""

    nonce: bytes


class AuthResponse(NamedTuple):
    """Signature of a nonce."""

    signature: bytes


class Ready(NamedTuple):
    """The server accepts and delivers packets from now on."""


class KeepAlive(NamedTuple):
    """Message that a client sends to keep an idle connection."""


class Unknown(NamedTuple):
    """Another command, which is ignored."""

    name: bytes


FromClient = Forward | AuthResponse | KeepAlive | Unknown
FromServer = Forward | LimitByteNanos | LimitIdle | AuthRequest | Ready | Unknown


def parse_from_client(message: bytes) -> FromClient:
    """Read a message as a server does; commands that only servers send are unknown to it.

    Raises:
        FrameError: the message is too short or too long, or is an authentication response of a
            wrong length.
    """
    header = _header(message)
    if not header.startswith(ZEROS):
        return Forward(header, message[HEADER_BYTES:])
    if header == AUTH_RESPONSE:
        if len(message) != HEADER_BYTES + SIGNATURE_BYTES:
            raise FrameError(
                DropReason.BAD_RESPONSE,
                f"authentication response of {len(message)} bytes, "
                f"expected {HEADER_BYTES + SIGNATURE_BYTES}",
            )
        return AuthResponse(message[HEADER_BYTES:])
    return KeepAlive() if header == KEEP_ALIVE else Unknown(header[COMMAND_ZEROS:])


def parse_from_server(message: bytes) -> FromServer:
    """Read a message as a client does.

    Raises:
        FrameError: the message is too short or too long, or is a command of a wrong length.
    """
    header = _header(message)
    if not header.startswith(ZEROS):
        return Forward(header, message[HEADER_BYTES:])
    rest = message[HEADER_BYTES:]
    if header == LIMIT_BYTE_NANOS:
        return LimitByteNanos(_int(rest, "lbrt"))
    if header == LIMIT_IDLE_MS:
        return LimitIdle(_int(rest, "lidl"))
    if header == AUTH_REQUEST:
        _check_length(rest, NONCE_BYTES, "areq")
        return AuthRequest(rest)
    return Ready() if header == READY else Unknown(header[COMMAND_ZEROS:])


def forward(key: bytes, payload: bytes) -> bytes:
    """Encode a packet.

    Args:
        key: key of the destination in a client, of the source in a server.
        payload: at most `MAX_PAYLOAD_BYTES`.

    Raises:
        MessageSizeError: the payload is too long.
    """
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise MessageSizeError(
            f"message of {len(payload)} bytes is too large, limit: {MAX_PAYLOAD_BYTES} bytes"
        )
    return key + payload


def limit_byte_nanos(byte_nanos: int) -> bytes:
    """Encode the time that each byte takes; values above `MAX_INT` are reduced to it."""
    return LIMIT_BYTE_NANOS + _INT.pack(min(byte_nanos, MAX_INT))


def limit_idle(idle_ms: int) -> bytes:
    """Encode the silence that ends a connection; values above `MAX_INT` are reduced to it."""
    return LIMIT_IDLE_MS + _INT.pack(min(idle_ms, MAX_INT))


def auth_request(nonce: bytes) -> bytes:
    """Encode the nonce that a client must sign."""
    return AUTH_REQUEST + nonce


def auth_response(signature: bytes) -> bytes:
    """Encode the signature of the nonce."""
    return AUTH_RESPONSE + signature


def key_of_path(segment: str) -> bytes:
    """Return the key that a path names, read as strictly as the reference does.

    Args:
        segment: the path without its slash, percent-decoded.

    Raises:
        KeyFormatError: the segment is not 32 bytes in base64url without padding, or has unused
            bits set.
    """
    if not _PATH.fullmatch(segment):
        raise KeyFormatError(
            f"invalid key in the path, expected {PATH_CHARS} characters of base64url"
        )
    try:
        key = urlsafe_b64decode(f"{segment}=")
    except binascii.Error as error:
        raise KeyFormatError(f"invalid key in the path: {error}") from None
    if path_of_key(key) != segment:
        raise KeyFormatError("invalid key in the path: the last character has unused bits set")
    return key


def accept_as_argument(parser: ArgumentParser) -> None:
    """Make a command-line parser accept a key that begins with a dash, as one in 64 does.

    argparse takes an argument that begins with a dash for an option, unless it looks like a
    negative number: make it accept arguments that look like a key instead.
    """
    parser._negative_number_matcher = _DASHED_PATH


def path_of_key(key: bytes) -> str:
    """Return the path segment that names a key."""
    return urlsafe_b64encode(key).rstrip(b"=").decode()


def is_addressable(key: bytes) -> bool:
    """Return whether packets can be sent to a key: it must not begin like a command."""
    return len(key) == KEY_BYTES and not key.startswith(ZEROS)


def _header(message: bytes) -> bytes:
    if len(message) < HEADER_BYTES:
        raise FrameError(
            DropReason.TOO_SHORT, f"message of {len(message)} bytes, at least {HEADER_BYTES}"
        )
    if len(message) > MAX_MESSAGE_BYTES:
        raise FrameError(
            DropReason.TOO_LARGE, f"message of {len(message)} bytes, limit: {MAX_MESSAGE_BYTES}"
        )
    return message[:HEADER_BYTES]


def _int(rest: bytes, name: str) -> int:
    _check_length(rest, _INT.size, name)
    number: int = _INT.unpack(rest)[0]
    return number


def _check_length(rest: bytes, size: int, name: str) -> None:
    if len(rest) != size:
        raise FrameError(
            DropReason.BAD_RESPONSE,
            f"{name} of {HEADER_BYTES + len(rest)} bytes, expected {HEADER_BYTES + size}",
        )
