"""What the two sides of the protocol tell their owner: see `machine.py`."""

from __future__ import annotations

from dataclasses import dataclass

from proto.rmb import types_pb2 as pb
from proto.rmb.address import Address, SessionKey
from proto.rmb.errors import EnvelopeError
from proto.rmb.reasons import MessageReason, SessionReason
from proto.rmb.routing import Step

# Of a relay, about one session.


@dataclass(frozen=True, slots=True)
class EnvelopeAccepted:
    """A message is to be queued or sent on; its bytes are forwarded as they are."""

    envelope: pb.Envelope
    """Parsed, to decide by; never serialised again."""
    data: bytes
    """What is forwarded."""
    destination: SessionKey
    """The session it is for."""
    step: Step
    """What to do with it next; never REFUSE."""


@dataclass(frozen=True, slots=True)
class EnvelopeRefused:
    """A message was dropped; the sender of a request has been told where there is a text."""

    reason: MessageReason
    """Counted under this name."""
    envelope: pb.Envelope | None
    """None when it could not be parsed."""
    size_bytes: int
    """Of the whole message."""


@dataclass(frozen=True, slots=True)
class PingAnswered:
    """A ping was turned into a pong for the same session."""

    uid: str


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session must be closed; nothing more is taken from it."""

    reason: SessionReason


RelayEvent = EnvelopeAccepted | EnvelopeRefused | PingAnswered | SessionFailed

# Of a peer. The source of a peer's envelope is verified: the twin signed it.


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """Somebody asks for something; answer with `send_response` or `send_error`."""

    uid: str
    source: Address
    """The session an answer goes to."""
    command: str
    payload: bytes
    """Decrypted."""
    schema: str | None
    """Content type of the payload."""
    tags: str | None
    deadline: int
    """Unix second from which on an answer is of no use."""


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """An answer to a request of ours; there may be several with one uid."""

    uid: str
    source: Address
    payload: bytes
    """Decrypted."""
    schema: str | None


@dataclass(frozen=True, slots=True)
class ErrorReceived:
    """A request of ours failed."""

    uid: str
    source: Address | None
    """None: a relay says so, unsigned."""
    code: int
    message: str
    payload: bytes
    """Decrypted; most errors have none."""


@dataclass(frozen=True, slots=True)
class PongReceived:
    """The relay has decided everything that was sent before the ping of this uid."""

    uid: str


@dataclass(frozen=True, slots=True)
class RequestExpired:
    """No more answers are waited for; there may have been some."""

    uid: str
    answers: int
    """How many there were."""


@dataclass(frozen=True, slots=True)
class EnvelopeUnmatched:
    """A message was dropped that answers nothing we wait for, and asks for nothing."""

    uid: str
    source: Address


@dataclass(frozen=True, slots=True)
class EnvelopeRejected:
    """An incoming message can't be used; the sender of a request has been told."""

    error: EnvelopeError
    """Its code and text are those of the answer."""
    uid: str
    """Empty when it could not be parsed."""


PeerEvent = (
    RequestReceived
    | ResponseReceived
    | ErrorReceived
    | PongReceived
    | RequestExpired
    | EnvelopeUnmatched
    | EnvelopeRejected
)
