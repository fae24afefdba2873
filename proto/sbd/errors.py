"""What is wrong with input, and with what an application asks for.

SbdError
├── FrameError           the peer broke the protocol
├── KeyFormatError       text or bytes are not a key
├── MessageSizeError     a message of the application is too long
├── ClosedError          the connection has ended
└── PeerError            no encrypted stream with this peer
    └── TooManyPeersError
"""

from __future__ import annotations

from enum import StrEnum


class DropReason(StrEnum):
    """Why a server drops a connection without a close frame."""

    ILLEGAL_KEY = "illegal_key"
    TOO_SHORT = "too_short"
    TOO_LARGE = "too_large"
    BAD_RESPONSE = "bad_response"
    BAD_SIGNATURE = "bad_signature"
    EARLY_FORWARD = "early_forward"
    SECOND_RESPONSE = "second_response"
    RATE_LIMIT = "rate_limit"
    PROTOCOL_ERROR = "protocol_error"
    HANDSHAKE_TIMEOUT = "handshake_timeout"
    IDLE = "idle"


class SbdError(Exception):
    """The root of this package's errors."""


class FrameError(SbdError):
    """A peer sent what the protocol does not allow.

    Attributes:
        reason: of the drop.
    """

    def __init__(self, reason: DropReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class KeyFormatError(SbdError):
    """Not 32 bytes in base64url without padding, or a key that cannot be addressed."""


class MessageSizeError(SbdError):
    """A message is longer than fits."""


class ClosedError(SbdError):
    """The connection has ended."""


class PeerError(SbdError):
    """This peer cannot be talked to."""


class TooManyPeersError(PeerError):
    """As many peers as may be are being talked to."""
