"""Fast extraction of an envelope's fields without parsing all of it.

To route an envelope, a relay needs its destination; to check one from a partner relay, it also
needs a dozen fields that are signed. Reading these through the protobuf runtime takes ten times as
long as parsing, and parsing takes longer than everything else that the compiled hot path does with
a message. So this module reads the bytes in one pass, if they are *regular*: written as every
implementation writes them, with each field at most once and in the order of their numbers, and with
text in ASCII. Anything else (an error, a text in another script, an unknown field, bytes that are
not an envelope) has no outline, and `proto.rmb.inbound` and `proto.federation.inbound` examine it.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from hotpath import compiled
from proto.rmb.address import SessionKey
from proto.rmb.bounds import MAX_TWIN, Bounds

if TYPE_CHECKING:
    from mypy_extensions import i64

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
"""Number and wire type of each field that a regular envelope may have, as encoded on the wire.
Errors, pongs and the deprecated list of relays are not among them."""

_TWIN: Final = 0x08
_CONNECTION: Final = 0x12
_COMMAND: Final = 0x0A
"""The same for the fields of its addresses and its request."""

_NUMBER_SHIFTS: Final = 63
"""Limit for numbers to at most nine bytes: larger ones are not times."""

_COMPILED: Final = compiled.in_use()


class Outline:
    """The fields of a regular envelope.

    Attributes:
        source: session key of the sender.
        destination: session key of the receiver.
        timestamp: Unix time.
        expiration: seconds from then.
        ping: whether the envelope is a ping.
    """

    __slots__ = (
        "_command",
        "_command_end",
        "_destination",
        "_destination_end",
        "_federation",
        "_federation_end",
        "_payload",
        "_payload_end",
        "_raw",
        "_schema",
        "_schema_end",
        "_signature",
        "_signature_end",
        "_source",
        "_source_end",
        "_tags",
        "_tags_end",
        "_uid",
        "_uid_end",
        "destination",
        "expiration",
        "ping",
        "source",
        "timestamp",
    )

    def __init__(self, raw: bytes) -> None:
        self.source: SessionKey = (0, None)
        self.destination: SessionKey = (0, None)
        self.timestamp: i64 = 0
        self.expiration: i64 = 0
        self.ping = False
        self._raw = raw
        # Positions at which each field begins and ends.
        self._uid: i64 = 0
        self._uid_end: i64 = 0
        self._tags: i64 = 0
        self._tags_end: i64 = 0
        self._source: i64 = 0
        self._source_end: i64 = 0
        self._destination: i64 = 0
        self._destination_end: i64 = 0
        self._command: i64 = 0
        self._command_end: i64 = 0
        self._signature: i64 = 0
        self._signature_end: i64 = 0
        self._schema: i64 = 0
        self._schema_end: i64 = 0
        self._federation: i64 = 0
        self._federation_end: i64 = 0
        self._payload: i64 = 0
        self._payload_end: i64 = 0

    @property
    def tags(self) -> bytes:
        """The tags as written; ASCII."""
        return self._raw[self._tags : self._tags_end]

    @property
    def signature(self) -> bytes:
        """The signature; empty if the envelope is not signed."""
        return self._raw[self._signature : self._signature_end]

    def challenge(self) -> bytes:
        """Return the 16 bytes that are signed, as `proto.rmb.challenge` does."""
        raw = self._raw
        source, from_connection = self.source
        destination, to_connection = self.destination
        times = b"%d%d" % (self.timestamp, self.expiration)
        sender = b"%d%b" % (source, (from_connection or "").encode())
        receiver = b"%d%b" % (destination, (to_connection or "").encode())
        command = raw[self._command : self._command_end]
        schema = raw[self._schema : self._schema_end]
        federation = raw[self._federation : self._federation_end]
        payload = raw[self._payload : self._payload_end]
        before = (raw[self._uid : self._uid_end], self.tags, times, sender, receiver)
        text = b"".join((*before, command, schema, federation, payload))
        return hashlib.md5(text, usedforsecurity=False).digest()


def outline(raw: bytes, bounds: Bounds) -> Outline | None:
    """Read a regular envelope with a source and a destination; return None for any other.

    Args:
        raw: bytes of an envelope.
        bounds: maximum sizes of its fields; an envelope that exceeds them has no outline.
    """
    found = _scan(raw, bounds)
    if found is None:
        return None
    longest = bounds.connection_bytes
    source = _address(raw, found._source, found._source_end, longest)
    if source is None:
        return None
    destination = _address(raw, found._destination, found._destination_end, longest)
    if destination is None:
        return None
    found.source = source
    found.destination = destination
    return found


def destination_of(raw: bytes, source: bytes, bounds: Bounds) -> SessionKey | None:
    """Read the destination of a regular envelope without tags.

    Args:
        raw: bytes of an envelope.
        source: address that it must come from, as its bytes in the envelope.
        bounds: maximum sizes of its fields.

    Returns:
        The session key; None for pings, and for all envelopes that `proto.rmb.inbound` must
        examine.
    """
    found = _scan(raw, bounds)
    if (
        found is None
        or found.ping
        or found._tags_end
        or raw[found._source : found._source_end] != source
    ):
        return None
    longest = bounds.connection_bytes
    return _address(raw, found._destination, found._destination_end, longest)


def _scan(raw: bytes, bounds: Bounds) -> Outline | None:
    """Find the fields of an envelope without reading its addresses; return None if it is not
    regular.
    """
    found = Outline(raw)
    end: i64 = len(raw)
    at: i64 = 0
    former: i64 = 0
    kinds: i64 = 0
    while at < end:
        tag: i64 = raw[at]
        if tag <= former:
            return None
        former = tag
        at += 1
        number: i64 = 0
        shift: i64 = 0
        while True:
            if at >= end or shift >= _NUMBER_SHIFTS:
                return None
            byte: i64 = raw[at]
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
        if number > end - at:
            return None
        begin: i64 = at
        at += number
        if tag == _SOURCE:
            found._source = begin
            found._source_end = at
        elif tag == _DESTINATION:
            found._destination = begin
            found._destination_end = at
        elif tag in (_PLAIN, _CIPHER):
            if found._payload_end > found._payload:
                return None  # the later one of the two would count
            found._payload = begin
            found._payload_end = at
        elif tag == _SIGNATURE:
            found._signature = begin
            found._signature_end = at
        elif tag == _REQUEST:
            kinds += 1
            if number:
                # It has only a command, whose length takes one byte.
                if number < 2 or number > 0x81:
                    return None
                if raw[begin] != _COMMAND or raw[begin + 1] != number - 2:
                    return None
                found._command = begin + 2
                found._command_end = at
                if not _is_ascii(raw, begin + 2, at):
                    return None
        elif tag == _RESPONSE:
            kinds += 1
            if number:
                return None
        elif tag == _PING:
            kinds += 1
            found.ping = True
            if number:
                return None
        elif not _is_ascii(raw, begin, at):
            return None
        elif tag == _UID:
            if number > bounds.uid_bytes:
                return None
            found._uid = begin
            found._uid_end = at
        elif tag == _TAGS:
            if number > bounds.tags_bytes:
                return None
            found._tags = begin
            found._tags_end = at
        elif tag == _SCHEMA:
            found._schema = begin
            found._schema_end = at
        elif tag == _FEDERATION:
            found._federation = begin
            found._federation_end = at
        else:
            return None
    return None if kinds > 1 else found


def _is_ascii(raw: bytes, at: i64, end: i64) -> bool:
    """Return whether a text is ASCII; when compiled, a loop takes less time than a slice."""
    if not _COMPILED:
        return raw[at:end].isascii()
    while at < end:
        if raw[at] >= 0x80:
            return False
        at += 1
    return True


def _address(raw: bytes, at: i64, end: i64, connection_bytes: int) -> SessionKey | None:
    """Read an address with a twin, in the usual encoding; return None for any other."""
    if at >= end or raw[at] != _TWIN:
        return None
    at += 1
    twin: i64 = 0
    shift: i64 = 0
    while True:
        if at >= end or shift > 28:
            return None
        byte: i64 = raw[at]
        at += 1
        twin |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if not twin or twin > MAX_TWIN:
        return None
    if at == end:
        return twin, None
    if raw[at] != _CONNECTION or at + 1 >= end:
        return None
    size: i64 = raw[at + 1]
    at += 2
    if size > 0x7F or at + size != end or size > connection_bytes:
        return None
    if not _is_ascii(raw, at, end):
        return None
    return twin, raw[at:end].decode()
