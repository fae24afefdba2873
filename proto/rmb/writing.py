"""The envelopes a peer sends, written straight to bytes.

What a peer sends is always the same few fields in the order of their numbers, and their values are
also what is signed. So both are put together here at once, in a third of the time it takes to fill
a message object, read it again for the challenge, and serialise it. The field numbers are those of
`types.proto`; the tests hold the result against the generated classes.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final, NamedTuple

from proto.rmb import types_pb2 as pb
from proto.rmb.address import SessionKey, to_message

KEPT_TEXTS: Final = 1024
"""Commands, addresses and numbers kept in written form, some 200 bytes each."""

_UID: Final = b"\x0a"
_TAGS: Final = b"\x12"
_TIMESTAMP: Final = b"\x18"
_EXPIRATION: Final = b"\x20"
_SOURCE: Final = b"\x2a"
_DESTINATION: Final = b"\x32"
_REQUEST: Final = b"\x3a"
_RESPONSE: Final = b"\x42"
_SIGNATURE: Final = b"\x4a"
_SCHEMA: Final = b"\x52"
_ERROR: Final = b"\x62"
_PLAIN: Final = b"\x6a"
_CIPHER: Final = b"\x72"


class Written(NamedTuple):
    """A field in both of its forms."""

    field: bytes
    """As it is on the wire."""
    text: bytes
    """What the challenge takes of it."""


class Body(NamedTuple):
    """A payload as it is sent."""

    data: bytes
    sealed: bool


RESPONSE: Final = Written(_RESPONSE + b"\0", b"")


@lru_cache(KEPT_TEXTS)
def request(command: str) -> Written:
    """The field that makes it a request."""
    message = pb.Request(command=command).SerializeToString()
    return Written(_REQUEST + _varint(len(message)) + message, command.encode())


def error(code: int, message: str) -> Written:
    """The field that makes it an error."""
    written = pb.Error(code=code, message=message).SerializeToString()
    return Written(_ERROR + _varint(len(written)) + written, f"{code}{message}".encode())


def source(key: SessionKey) -> Written:
    """Where it comes from."""
    return _address(_SOURCE, key)


@lru_cache(KEPT_TEXTS)
def destination(key: SessionKey) -> Written:
    """Where it goes."""
    return _address(_DESTINATION, key)


class Envelope:
    """An envelope that is to be signed.

    Args:
        uid: of the request.
        sender: of `source`.
        receiver: of `destination`.
        kind: of `request` or `error`, or RESPONSE.
        timestamp: unix seconds.
        expiration_s: time to live.
        body: None for no payload.
        tags: None for none, which is not the same as empty ones.
        schema: None for none.

    Attributes:
        challenge: the 16 bytes that are signed.
    """

    __slots__ = ("_after", "_before", "challenge")

    def __init__(
        self,
        uid: str,
        sender: Written,
        receiver: Written,
        kind: Written,
        timestamp: int,
        expiration_s: int,
        body: Body | None,
        tags: str | None,
        schema: str | None,
    ) -> None:
        raw_uid = uid.encode()
        before = [_UID, _varint(len(raw_uid)), raw_uid]
        signed = [raw_uid, b"%d%d" % (timestamp, expiration_s)]
        signed += sender.text, receiver.text, kind.text
        if tags is not None:
            raw_tags = tags.encode()
            before += _TAGS, _varint(len(raw_tags)), raw_tags
            signed.insert(1, raw_tags)
        # Zero is not written, as in all of proto3.
        if timestamp:
            before += _TIMESTAMP, _varint(timestamp)
        if expiration_s:
            before += _EXPIRATION, _varint(expiration_s)
        before += sender.field, receiver.field, kind.field
        after: list[bytes] = []
        if schema is not None:
            raw_schema = schema.encode()
            after += _SCHEMA, _varint(len(raw_schema)), raw_schema
            signed.append(raw_schema)
        if body is not None:
            after += _CIPHER if body.sealed else _PLAIN, _varint(len(body.data)), body.data
            signed.append(body.data)
        self._before, self._after = before, after
        self.challenge = hashlib.md5(b"".join(signed), usedforsecurity=False).digest()

    def signed(self, signature: bytes) -> bytes:
        """The whole message."""
        size = _varint(len(signature))
        return b"".join((*self._before, _SIGNATURE, size, signature, *self._after))


def _address(tag: bytes, key: SessionKey) -> Written:
    message = to_message(key).SerializeToString()
    text = f"{key[0]}{key[1] or ''}".encode()
    return Written(tag + _varint(len(message)) + message, text)


@lru_cache(KEPT_TEXTS)  # lengths, and the second it is
def _varint(number: int) -> bytes:
    octets = bytearray()
    while number >= 0x80:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)
