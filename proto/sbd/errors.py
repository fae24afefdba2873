"""Errors of received input, and of invalid use by an application.

SbdError
├── FrameError           the peer broke the protocol
├── KeyFormatError       a text or some bytes are not a key
├── MessageSizeError     a message of the application is too long
├── ClosedError          the connection has ended
└── PeerError            there cannot be an encrypted stream with this peer
    └── TooManyPeersError
"""

from __future__ import annotations

from enum import StrEnum


class DropReason(StrEnum):
    """Reasons for which a server drops a connection without a close frame."""

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
    """Base class of this package's errors."""


class FrameError(SbdError):
    """A peer sent something that the protocol does not allow.

    Attributes:
        reason: reason for which a server drops the connection.
    """

    def __init__(self, reason: DropReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class KeyFormatError(SbdError):
    """A key is not 32 bytes in base64url without padding, or cannot be addressed."""


class MessageSizeError(SbdError):
    """A message is too long."""


class ClosedError(SbdError):
    """The connection has ended."""


class PeerError(SbdError):
    """There cannot be an encrypted stream with this peer."""


class TooManyPeersError(PeerError):
    """The maximum number of peers have streams already."""
