"""Frames, each of which is one binary websocket message (sheet section 2).

    stream id (varint) type (2 bytes) payload
        0000 DATA    bytes of the stream
        0001 ACK     4 bytes: how many more bytes may be sent
        0002 ERROR   half, code (varint)
        0003 CLOSE   half

The half is that of the receiver: 00, its reading half (the sender writes no more), or 01, its
writing half (the sender reads no more). Bytes after those that a type needs are ignored.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from proto.mux import varint
from proto.mux.bounds import MAX_GRANT
from proto.mux.errors import FrameError, Violation

DATA: Final = b"\0\0"
ACK: Final = b"\0\1"
ERROR: Final = b"\0\2"
CLOSE: Final = b"\0\3"

_ACK_BYTES: Final = 4


class Half(IntEnum):
    """Half of the receiver's stream that a frame is about."""

    READ = 0
    WRITE = 1


class Data(NamedTuple):
    """Bytes of a stream."""

    payload: bytes


class Ack(NamedTuple):
    """Permission to send more bytes, `grant` of them."""

    grant: int


class Error(NamedTuple):
    """A half was aborted or cancelled."""

    half: Half
    code: int


class Close(NamedTuple):
    """A half ended cleanly, or (writing half) the receiver's end is confirmed."""

    half: Half


Frame = Data | Ack | Error | Close


def parse_id(message: bytes) -> tuple[int, int]:
    """Read the stream id of a frame.

    Returns:
        The id, and the position after it.

    Raises:
        FrameError: the message is empty, or the id is cut off.
    """
    if not message:
        raise FrameError(Violation.EMPTY, "a message is empty")
    if message[0] < 1 << 6:
        return message[0], 1
    try:
        return varint.decode(message)
    except ValueError:
        raise FrameError(Violation.BAD_ID, "the id of a stream is cut off") from None


def parse_frame(message: bytes, start: int) -> Frame:
    """Read the rest of a frame, after the id.

    Args:
        message: a frame.
        start: position after the id.

    Raises:
        FrameError: the frame is malformed, or its type is unknown.
    """
    kind, at = message[start : start + 2], start + 2
    if kind == DATA:
        return Data(message[at:])
    if kind == ACK:
        return Ack(parse_grant(message, at))
    if kind == ERROR:
        half = _half(message, at, "ERROR")
        try:
            code, _ = varint.decode(message, at + 1)
        except ValueError:
            raise _malformed("the code of an ERROR is cut off") from None
        return Error(half, code)
    if kind == CLOSE:
        return Close(_half(message, at, "CLOSE"))
    raise _malformed(f"a frame has the unknown type {kind.hex() or 'of no bytes'}")


def parse_grant(message: bytes, at: int) -> int:
    """Read the grant of an ACK, which follows the type.

    Raises:
        FrameError: the grant is cut off.
    """
    grant = message[at : at + _ACK_BYTES]
    if len(grant) < _ACK_BYTES:
        raise _malformed(f"an ACK has {len(grant)} of {_ACK_BYTES} bytes")
    return int.from_bytes(grant, "big")


def is_ack(message: bytes, start: int) -> bool:
    """Return whether a frame is an ACK, well-formed or not."""
    return message[start : start + 2] == ACK


def data(prefix: bytes, payload: bytes | memoryview) -> bytes:
    """Return a DATA frame; the prefix is the stream's id as a varint."""
    return b"".join((prefix, DATA, payload))


def ack(prefix: bytes, grant: int) -> bytes:
    """Return an ACK frame; the grant is at most `MAX_GRANT`."""
    assert 0 < grant <= MAX_GRANT
    return prefix + ACK + grant.to_bytes(_ACK_BYTES, "big")


def error(prefix: bytes, half: Half, code: int) -> bytes:
    """Return an ERROR frame."""
    return prefix + ERROR + bytes((half,)) + varint.encode(code)


def close(prefix: bytes, half: Half) -> bytes:
    """Return a CLOSE frame."""
    return prefix + CLOSE + bytes((half,))


def _half(message: bytes, at: int, name: str) -> Half:
    if at >= len(message):
        raise _malformed(f"{name} ends before its half")
    if message[at] > 1:
        raise _malformed(f"{name} is about half {message[at]}, not 0 or 1")
    return Half(message[at])


def _malformed(text: str) -> FrameError:
    return FrameError(Violation.MALFORMED, text)
