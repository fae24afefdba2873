"""What a relay reads of an envelope that another relay brought, without parsing the whole of it.

Reading a dozen fields through the protobuf runtime, to judge an envelope and to hash what is
signed of it, takes ten times as long as parsing it. So the bytes are read in one pass here, where
they are *regular*: as every implementation writes them, with each field at most once and in the
order of their numbers, and with text of ASCII. Whatever is not (an error, a text in another script,
an unknown field, bytes that are no envelope) has no outline; `proto.federation.inbound` judges it.
"""

from __future__ import annotations

import hashlib
from typing import Final

from proto.rmb.address import SessionKey
from proto.rmb.bounds import MAX_TWIN, Bounds

_UID: Final = 0x0A
_TAGS: Final = 0x12
_TIMESTAMP: Final = 0x18
_EXPIRATION: Final = 0x20
_SOURCE: Final = 0x2A
_DESTINATION: Final = 0x32
_REQUEST: Final = 0x3A
_RESPONSE: Final = 0x42
_SIGNATURE: Final = 0x4A
_SCHEMA: Final = 0x52
_FEDERATION: Final = 0x5A
_PLAIN: Final = 0x6A
_CIPHER: Final = 0x72
_PING: Final = 0x7A
"""Number and kind of each field that a regular envelope may have, as they are on the wire. Errors,
pongs and the deprecated list of relays are not among them."""

_TWIN: Final = 0x08
_CONNECTION: Final = 0x12
_COMMAND: Final = 0x0A
"""... and those of its parts."""

_NUMBER_SHIFTS: Final = 63
"""A number of at most nine bytes: larger ones are no times."""


class Outline:
    """The fields of a regular envelope.

    Attributes:
        source: session key of its sender.
        destination: session key it is for.
        timestamp: unix time.
        expiration: seconds from then.
        tags: as they are written; ASCII.
        signature: empty if the envelope is not signed.
    """

    __slots__ = (
        "_command",
        "_last",
        "_payload",
        "_uid",
        "destination",
        "expiration",
        "signature",
        "source",
        "tags",
        "timestamp",
    )

    def __init__(self) -> None:
        self.source: SessionKey = (0, None)
        self.destination: SessionKey = (0, None)
        self.timestamp = 0
        self.expiration = 0
        self.tags = b""
        self.signature = b""
        self._uid = b""
        self._command = b""
        self._last = b""  # schema and federation
        self._payload = b""

    def challenge(self) -> bytes:
        """Return the 16 bytes that are signed, as `proto.rmb.challenge` does."""
        source, from_connection = self.source
        destination, to_connection = self.destination
        times = b"%d%d" % (self.timestamp, self.expiration)
        sender = b"%d%b" % (source, (from_connection or "").encode())
        receiver = b"%d%b" % (destination, (to_connection or "").encode())
        fields = (self._uid, self.tags, times, sender, receiver, self._command, self._last)
        text = b"".join((*fields, self._payload))
        return hashlib.md5(text, usedforsecurity=False).digest()


def outline(raw: bytes, bounds: Bounds) -> Outline | None:
    """Read a regular envelope with a source and a destination; None for all else.

    Args:
        raw: bytes of an envelope.
        bounds: sizes its fields may have; with a larger one it has no outline.
    """
    found = Outline()
    end = len(raw)
    at = former = 0
    kinds = 0
    while at < end:
        tag = raw[at]
        if tag <= former:
            return None
        former = tag
        at += 1
        number = shift = 0
        while True:
            if at >= end or shift >= _NUMBER_SHIFTS:
                return None
            byte = raw[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if tag == _TIMESTAMP:
            found.timestamp = number
            continue
        if tag == _EXPIRATION:
            found.expiration = number
            continue
        begin, at = at, at + number
        if at > end:
            return None
        if tag in (_SOURCE, _DESTINATION):
            key = _address(raw, begin, at, bounds.connection_bytes)
            if key is None:
                return None
            if tag == _SOURCE:
                found.source = key
            else:
                found.destination = key
        elif tag in (_PLAIN, _CIPHER):
            if found._payload:
                return None  # the later one of the two would count
            found._payload = raw[begin:at]
        elif tag == _SIGNATURE:
            found.signature = raw[begin:at]
        elif tag == _REQUEST:
            kinds += 1
            if number:
                command = _command(raw, begin, at)
                if command is None:
                    return None
                found._command = command
        elif tag in (_RESPONSE, _PING):
            kinds += 1
            if number:
                return None
        else:
            text = raw[begin:at]
            if not text.isascii():
                return None
            if tag == _UID:
                if number > bounds.uid_bytes:
                    return None
                found._uid = text
            elif tag == _TAGS:
                if number > bounds.tags_bytes:
                    return None
                found.tags = text
            elif tag in (_SCHEMA, _FEDERATION):
                found._last += text
            else:
                return None
    if kinds > 1 or not found.source[0] or not found.destination[0]:
        return None
    return found


def _command(raw: bytes, at: int, end: int) -> bytes | None:
    """The command of a request that has nothing else; its length takes one byte."""
    size = end - at - 2
    if size < 0 or size > 0x7F or raw[at] != _COMMAND or raw[at + 1] != size:
        return None
    command = raw[at + 2 : end]
    return command if command.isascii() else None


def _address(raw: bytes, at: int, end: int, connection_bytes: int) -> SessionKey | None:
    """An address of the form that everybody writes."""
    if at >= end or raw[at] != _TWIN:
        return None
    at += 1
    twin = shift = 0
    while True:
        if at >= end or shift > 28:
            return None
        byte = raw[at]
        at += 1
        twin |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if twin > MAX_TWIN:
        return None
    if at == end:
        return twin, None
    if raw[at] != _CONNECTION or at + 1 >= end:
        return None
    size = raw[at + 1]
    at += 2
    if size > 0x7F or at + size != end or size > connection_bytes:
        return None
    connection = raw[at:end]
    if not connection.isascii():
        return None
    return twin, connection.decode()
