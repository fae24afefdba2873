"""Reasons for which a reader refuses the input of the remote side.

Exception
└── FrameError
"""

from __future__ import annotations

from enum import Enum, IntEnum, StrEnum


class CloseCode(IntEnum):
    """Close codes that this package sends or reports (RFC 6455, section 7.4.1)."""

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
    """Reasons of a reader, named as in the list of reasons (`proto/rmb/reasons.py`)."""

    TEXT_FRAME = "text_frame"
    TOO_LARGE = "too_large"
    PROTOCOL_ERROR = "protocol_error"


class Fault(Enum):
    """Faults that a reader refuses. `docs/protocol/reasons.md` lists the close frames.

    Attributes:
        code: close code to send.
        refusal: reason to count.
        text: reason of the close frame: the counted reason, with a detail where it is not specific
            enough.
    """

    TEXT_FRAME = (CloseCode.UNSUPPORTED_DATA, Refusal.TEXT_FRAME)
    TOO_LARGE = (CloseCode.MESSAGE_TOO_BIG, Refusal.TOO_LARGE)
    TOO_MUCH_INCOMPLETE = (
        CloseCode.TRY_AGAIN_LATER,
        Refusal.TOO_LARGE,
        "too many incomplete messages",
    )
    RESERVED_BIT = (CloseCode.PROTOCOL_ERROR, Refusal.PROTOCOL_ERROR, "reserved bit set")
    UNMASKED = (CloseCode.PROTOCOL_ERROR, Refusal.PROTOCOL_ERROR, "frame is not masked")
    UNKNOWN_OPCODE = (CloseCode.PROTOCOL_ERROR, Refusal.PROTOCOL_ERROR, "unknown opcode")
    LONG_LENGTH = (
        CloseCode.PROTOCOL_ERROR,
        Refusal.PROTOCOL_ERROR,
        "length not in its shortest form",
    )
    FRAGMENT_ORDER = (CloseCode.PROTOCOL_ERROR, Refusal.PROTOCOL_ERROR, "fragments out of order")
    CONTROL_FRAGMENT = (
        CloseCode.PROTOCOL_ERROR,
        Refusal.PROTOCOL_ERROR,
        "fragmented control frame",
    )
    CONTROL_SIZE = (CloseCode.PROTOCOL_ERROR, Refusal.PROTOCOL_ERROR, "control frame too long")
    CLOSE_CODE = (CloseCode.PROTOCOL_ERROR, Refusal.PROTOCOL_ERROR, "invalid close code")
    MESSAGE_TEXT = (CloseCode.INVALID_DATA, Refusal.PROTOCOL_ERROR, "text is not UTF-8")
    CLOSE_TEXT = (CloseCode.INVALID_DATA, Refusal.PROTOCOL_ERROR, "close reason is not UTF-8")
    CLOSE_INSIDE_MESSAGE = (
        CloseCode.PROTOCOL_ERROR,
        Refusal.PROTOCOL_ERROR,
        "incomplete fragmented message",
    )

    def __init__(self, code: CloseCode, refusal: Refusal, detail: str = "") -> None:
        self.code = code
        self.refusal = refusal
        self.text = f"{refusal.value}: {detail}" if detail else refusal.value


class FrameError(Exception):
    """The remote side broke the protocol or a bound; the connection must be closed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.text)
        self.fault = fault
