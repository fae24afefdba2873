"""What is wrong with input, and with what an application asks for.

MuxError
├── ViolationError         the other side broke the protocol
├── FrameError             a message is no frame
├── StreamStateError       the stream, or the connection, cannot do this any more
└── StreamIdsUsedUpError   no id is left
"""

from __future__ import annotations

from enum import StrEnum


class Violation(StrEnum):
    """How the other side broke the protocol: the connection is closed with 1002."""

    TEXT = "text"
    EMPTY = "empty"
    BAD_ID = "bad_id"
    MALFORMED = "malformed"
    UNKNOWN_ID = "unknown_id"
    """An id of our parity that we never gave out."""
    CREDIT = "credit"
    """All grants of a stream are above 2^62 bytes."""
    DATA_AFTER_END = "data_after_end"


class MuxError(Exception):
    """The root of this package's errors."""


class FrameError(MuxError):
    """A message is not a frame, or the frame is malformed.

    Attributes:
        violation: of the protocol.
    """

    def __init__(self, violation: Violation, text: str) -> None:
        super().__init__(text)
        self.violation = violation


class StreamStateError(MuxError):
    """The stream, its half or the connection has ended."""


class StreamIdsUsedUpError(MuxError):
    """All ids of this side have been used."""
