"""Envelopes that a relay creates itself: errors to the sender of a request, and pongs.

They are unsigned. An error has no source, which is how clients distinguish it from a peer's error;
it goes to exactly the session that sent the request. Texts are those of rmb-rs 1.5 where it has
one.
"""

from __future__ import annotations

from typing import Final

from proto.rmb import types_pb2 as pb
from proto.rmb.address import SessionKey, to_message
from proto.rmb.bounds import NOTICE_EXPIRATION_S
from proto.rmb.reasons import MessageReason

WRONG_SOURCE: Final = "message wrong source"
MISSING_DESTINATION: Final = "message with missing destination"
UNKNOWN_TWIN: Final = "unknown twin destination"
NO_RELAY: Final = "relay info is not set for this twin"
OFFLINE: Final = "destination offline"
LIMIT_EXCEEDED: Final = "exceeded rate limits, dropping message"
EXPIRED: Final = "message has expired"
REMOTE_REFUSED: Final = "remote relay rejected permanently: destination offline"
# The reference relay has no texts for the following.
NO_USABLE_RELAY: Final = "twin lists no usable relay"
TOO_LARGE: Final = "message is too large"
BANNED: Final = "twin is banned"
QUEUE_FULL: Final = "destination queue is full"
SOURCE_SHARE: Final = "sender's share of the destination queue is full"
STORAGE_FULL: Final = "relay storage is full"
OUTBOX_FULL: Final = "federation queue is full"
LOOK_UP_FAILED: Final = "twin lookup failed"
SOURCE_FULL: Final = "too many messages of the sender wait in queues"
TWIN_FULL: Final = "all queues of the destination twin are full"

TEXTS: Final[dict[MessageReason, str]] = {
    MessageReason.TOO_LARGE: TOO_LARGE,
    MessageReason.WRONG_SOURCE: WRONG_SOURCE,
    MessageReason.MISSING_DESTINATION: MISSING_DESTINATION,
    MessageReason.UNKNOWN_TWIN: UNKNOWN_TWIN,
    MessageReason.NO_RELAY: NO_RELAY,
    MessageReason.NO_USABLE_RELAY: NO_USABLE_RELAY,
    MessageReason.OFFLINE_FAILFAST: OFFLINE,
    MessageReason.LIMIT_COUNT: LIMIT_EXCEEDED,
    MessageReason.LIMIT_SIZE: LIMIT_EXCEEDED,
    MessageReason.BANNED: BANNED,
    MessageReason.QUEUE_FULL: QUEUE_FULL,
    MessageReason.SOURCE_SHARE: SOURCE_SHARE,
    MessageReason.STORAGE_FULL: STORAGE_FULL,
    MessageReason.EXPIRED: EXPIRED,
    MessageReason.REMOTE_4XX: REMOTE_REFUSED,
    MessageReason.OUTBOX_FULL: OUTBOX_FULL,
    MessageReason.LOOK_UP_FAILED: LOOK_UP_FAILED,
    MessageReason.SOURCE_FULL: SOURCE_FULL,
    MessageReason.TWIN_FULL: TWIN_FULL,
}
"""Error texts for the sender of a request. For the other reasons no error is sent."""

PONG_PAYLOAD: Final = b"hello world"
"""Text appended to a ping's plain payload; no client reads it, but all have always received it."""


def error_notice(request: pb.Envelope, text: str, now: int, to: SessionKey | None = None) -> bytes:
    """Return the error envelope that reports to the sender of a request why it was refused.

    The caller must have checked that it is a request: no other kind may be answered with an error.

    Args:
        request: the refused envelope.
        text: error text for the sender.
        now: Unix seconds.
        to: session of the sender; if None, the envelope's source, which a relay may trust only if
            the envelope came through a session of that source.
    """
    notice = pb.Envelope(uid=request.uid, timestamp=now, expiration=NOTICE_EXPIRATION_S)
    notice.error.message = text
    # Code 0 is the default of proto3 and not on the wire, as with the reference relay.
    notice.destination.CopyFrom(request.source if to is None else to_message(to))
    return notice.SerializeToString()


def refusal(
    envelope: pb.Envelope,
    reason: MessageReason,
    now: int,
    to: SessionKey | None = None,
    detail: str | None = None,
) -> bytes | None:
    """Return the error envelope for a refused message.

    None if the message is not a request, or if no error is sent for the reason. A `detail` replaces
    the reason's own text.
    """
    text = detail or TEXTS.get(reason)
    if text is None or not envelope.HasField("request"):
        return None
    return error_notice(envelope, text, now, to)


def pong(ping: pb.Envelope) -> bytes:
    """Return the answer to an envelope ping: the ping itself with its addresses swapped.

    Everything else is kept, including the signature (which no longer matches), as in the reference
    relay.
    """
    answer = pb.Envelope()
    answer.CopyFrom(ping)
    # Clearing first keeps an absent destination absent: it becomes a pong without a source.
    answer.ClearField("source")
    answer.ClearField("destination")
    if ping.HasField("source"):
        answer.destination.CopyFrom(ping.source)
    if ping.HasField("destination"):
        answer.source.CopyFrom(ping.destination)
    answer.pong.SetInParent()
    # `plain` is empty unless set; setting it also replaces a cipher.
    answer.plain = ping.plain + PONG_PAYLOAD
    return answer.SerializeToString()
