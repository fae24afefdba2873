"""Why a reader refuses a peer's input.

Exception
└── FrameError
"""

from __future__ import annotations

from enum import IntEnum, StrEnum


class CloseCode(IntEnum):
    """Close codes this package sends or reports (RFC 6455, section 7.4.1)."""

    NORMAL = 1000
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    NO_STATUS = 1005  # reported only: a close frame without a code
    ABNORMAL = 1006  # reported only: the end of a connection without close frame
    INVALID_DATA = 1007
    MESSAGE_TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    SERVICE_RESTART = 1012
    TRY_AGAIN_LATER = 1013


class Refusal(StrEnum):
    """The reasons of a reader, named as in the one list of reasons (`proto/rmb/reasons.py`)."""

    TEXT_FRAME = "text_frame"
    TOO_LARGE = "too_large"
    PROTOCOL_ERROR = "protocol_error"


class FrameError(Exception):
    """The peer broke the protocol or a bound; the connection has to be closed.

    Attributes:
        code: close code for the peer.
        refusal: the reason to count.
        text: reason of the close frame, ASCII, short.
    """

    def __init__(self, code: CloseCode, refusal: Refusal, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.refusal = refusal
        self.text = text
