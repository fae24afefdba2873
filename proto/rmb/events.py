"""Events that the two sides of the protocol report to their owner: see `machine.py`."""

from __future__ import annotations

from dataclasses import dataclass

from proto.rmb import types_pb2 as pb
from proto.rmb.address import Address, SessionKey
from proto.rmb.errors import EnvelopeError
from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.routing import Step

# Events of a relay, about one session.


@dataclass(frozen=True, slots=True)
class EnvelopeAccepted:
    """A message must be queued or forwarded; its bytes are forwarded unchanged."""

    envelope: pb.Envelope
    """The parsed envelope, for decisions; it is never serialised again."""
    data: bytes
    """Bytes to forward."""
    destination: SessionKey
    """Session that the message is for."""
    step: Step
    """Next step; never REFUSE."""


@dataclass(frozen=True, slots=True)
class EnvelopeRefused:
    """A message was dropped. The sender of a request got an error if the reason has a text."""

    reason: MessageReason
    """Reason under which it is counted."""
    envelope: pb.Envelope | None
    """None if it could not be parsed."""
    size_bytes: int
    """Size of the whole message."""


@dataclass(frozen=True, slots=True)
class PingAnswered:
    """A ping was answered with a pong to the same session."""

    uid: str


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session must be closed; no further input of it is processed."""

    reason: SessionReason


RelayEvent = EnvelopeAccepted | EnvelopeRefused | PingAnswered | SessionFailed

# Events of a peer. The source of a peer's envelope is verified: the twin signed it.


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request arrived; answer it with `send_response` or `send_error`."""

    uid: str
    source: Address
    """Session that an answer goes to."""
    command: str
    payload: bytes
    """Decrypted payload."""
    schema: str | None
    """Content type of the payload."""
    tags: str | None
    deadline: int
    """Unix second from which on an answer is useless."""


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """An answer to a request of this peer arrived; there may be several with one uid."""

    uid: str
    source: Address
    payload: bytes
    """Decrypted payload."""
    schema: str | None


@dataclass(frozen=True, slots=True)
class ErrorReceived:
    """A request of this peer failed."""

    uid: str
    source: Address | None
    """None for an unsigned error from a relay."""
    code: int
    message: str
    payload: bytes
    """Decrypted payload; most errors have none."""


@dataclass(frozen=True, slots=True)
class PongReceived:
    """The relay has processed everything that was sent before the ping of this uid."""

    uid: str


@dataclass(frozen=True, slots=True)
class RequestExpired:
    """A request expired, and later answers are not accepted; some may have arrived before."""

    uid: str
    answers: int
    """Number of answers that arrived."""


@dataclass(frozen=True, slots=True)
class EnvelopeUnmatched:
    """A message was dropped that is not a request and answers no pending request."""

    uid: str
    source: Address


@dataclass(frozen=True, slots=True)
class EnvelopeRejected:
    """An incoming message cannot be used; the sender of a request was sent an error."""

    error: EnvelopeError
    """Error whose code and message are those of the answer."""
    uid: str
    """Empty if the message could not be parsed."""


PeerEvent = (
    RequestReceived
    | ResponseReceived
    | ErrorReceived
    | PongReceived
    | RequestExpired
    | EnvelopeUnmatched
    | EnvelopeRejected
)
