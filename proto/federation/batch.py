"""The batch form: many envelopes in one POST between two relays of this implementation.

The body of the request has the sending relay's id, then one record per message:

    uvarint n, n bytes           id of the relay, once
    uvarint n, n bytes           id of the delivery, `<shard>-<entry id>`
    1 byte                       flags; bit 0: it may have been accepted before (for older relays)
    uvarint n, n bytes           the envelope, unchanged

The body of the answer has one status per message, in order, as 16 bits with the high byte first.
They are the statuses that the single form would have answered, and 208 for a message that was
accepted before.

A uvarint holds 7 bits per byte, lowest first; the high bit says that more bytes follow.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from proto.federation.errors import BatchBound, BatchError, BatchTruncated

PATH: Final = "/federation/v1/batch"
OFFER_HEADER: Final = "RMB-Federation"
"""Header in every answer of this implementation to a federation POST."""
OFFER: Final = "batch=1"
RELAY_HEADER: Final = "RMB-Relay"
"""Header in every request: the first domain of the relay that sends it."""
DELIVERY_HEADER: Final = "RMB-Delivery"
"""Header in requests of the single form: `<relay id>/<delivery id>`, then `;retry` if the message
may have been accepted before. Only relays of older releases read it."""
RETRY_SUFFIX: Final = ";retry"

MAX_MESSAGES: Final = 512
"""Maximum number of messages in one batch: the answer then comes within milliseconds, and few
messages are repeated if it is lost."""
MAX_BODY_BYTES: Final = 4 << 20
"""Maximum size of the body of one batch. A message that does not fit is sent in the single form."""
MAX_ID_BYTES: Final = 64
"""Maximum size of a relay's or delivery's id; those of this implementation have 32 and at
most 43."""
MAX_UVARINT_BYTES: Final = 5
RECORD_OVERHEAD_BYTES: Final = 1 + MAX_ID_BYTES + 1 + MAX_UVARINT_BYTES
"""Maximum size of a record without its envelope."""

ACCEPTED: Final = 202
HAD_ALREADY: Final = 208

_RETRY: Final = 1
_SHORT: Final = tuple(bytes((n,)) for n in range(128))


class Record(NamedTuple):
    """One message of a batch.

    Attributes:
        id: id of the delivery, unique for the sending relay.
        retry: whether it may have been accepted before; only relays of older releases read it.
        envelope: bytes of the envelope.
    """

    id: bytes
    retry: bool
    envelope: bytes


def encode(relay_id: bytes, records: Sequence[tuple[bytes, bool, bytes]]) -> bytes:
    """Encode the body of a batch.

    Args:
        relay_id: id of the relay that sends the batch.
        records: the messages, as in `Record`; plain tuples are faster to create.

    Raises:
        BatchBound: an id, the number of records or the whole body is above its bound.
    """
    if len(records) > MAX_MESSAGES:
        raise BatchBound("messages", len(records), MAX_MESSAGES)
    _check("relay id", len(relay_id), MAX_ID_BYTES)
    parts = [_SHORT[len(relay_id)], relay_id]
    append = parts.append
    for record_id, retry, envelope in records:
        _check("delivery id", len(record_id), MAX_ID_BYTES)
        append(_SHORT[len(record_id)])
        append(record_id)
        append(b"\x01" if retry else b"\x00")
        append(uvarint(len(envelope)))
        append(envelope)
    body = b"".join(parts)
    if len(body) > MAX_BODY_BYTES:
        raise BatchBound("bytes", len(body), MAX_BODY_BYTES)
    return body


def decode(body: bytes) -> tuple[bytes, list[Record]]:
    """Decode the body of a batch.

    Returns:
        The id of the relay and the messages in order.

    Raises:
        BatchError: the body is not a batch; the message says what is wrong.
    """
    end = len(body)
    if end > MAX_BODY_BYTES:
        raise BatchBound("bytes", end, MAX_BODY_BYTES)
    relay_id, at = _short_field(body, 0, "relay id")
    records: list[Record] = []
    while at < end:
        if len(records) == MAX_MESSAGES:
            raise BatchBound("messages", MAX_MESSAGES + 1, MAX_MESSAGES)
        record_id, at = _short_field(body, at, "delivery id")
        if at >= end:
            raise BatchTruncated("flags")
        # Flags of later releases are accepted: only the lowest bit has a meaning here.
        retry = body[at] & _RETRY != 0
        size, at = _read_uvarint(body, at + 1, "envelope length")
        until = at + size
        if until > end:
            raise BatchTruncated("envelope")
        records.append(Record(record_id, retry, body[at:until]))
        at = until
    return relay_id, records


def encode_answer(statuses: Sequence[int]) -> bytes:
    """Encode the body of the answer: one status per message, in the order of the batch."""
    return struct.pack(f">{len(statuses)}H", *statuses)


def decode_answer(body: bytes, messages: int) -> tuple[int, ...]:
    """Decode the body of an answer.

    Args:
        body: bytes of the answer.
        messages: number of messages in the batch.

    Raises:
        BatchError: the answer does not have one status per message.
    """
    if len(body) != 2 * messages:
        raise BatchError(f"answer has {len(body)} bytes for {messages} messages")
    return struct.unpack(f">{messages}H", body)


def delivery_header(relay_id: str, delivery_id: str, retry: bool) -> str:
    """Return the value of the header that identifies one delivery in the single form."""
    return f"{relay_id}/{delivery_id}{RETRY_SUFFIX if retry else ''}"


def uvarint(number: int) -> bytes:
    """Encode a number of at most `MAX_UVARINT_BYTES`."""
    if number < 128:
        return _SHORT[number]
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _read_uvarint(body: bytes, at: int, field: str) -> tuple[int, int]:
    number = shift = 0
    for position in range(at, at + MAX_UVARINT_BYTES):
        if position >= len(body):
            raise BatchTruncated(field)
        byte = body[position]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position + 1
        shift += 7
    raise BatchError(f"batch {field} has more than {MAX_UVARINT_BYTES} bytes")


def _short_field(body: bytes, at: int, field: str) -> tuple[bytes, int]:
    """Read an id. Its length is one byte, as the bound is below 128."""
    if at >= len(body):
        raise BatchTruncated(field)
    size = body[at]
    if size == 0:
        raise BatchError(f"batch {field} is empty")
    _check(field, size, MAX_ID_BYTES)
    until = at + 1 + size
    if until > len(body):
        raise BatchTruncated(field)
    return body[at + 1 : until], until


def _check(field: str, size: int, bound: int) -> None:
    if size > bound:
        raise BatchBound(field, size, bound)
