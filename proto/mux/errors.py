"""Errors of received input, and of invalid use by an application.

MuxError
├── FrameError             a message is not a valid frame
├── StreamStateError       the stream or the connection has ended, so the operation is impossible
└── StreamIdsUsedUpError   no id is left
"""

from __future__ import annotations

from enum import StrEnum


class Violation(StrEnum):
    """Violations of the protocol by the other side; the connection is closed with code 1002."""

    TEXT = "text"
    EMPTY = "empty"
    BAD_ID = "bad_id"
    MALFORMED = "malformed"
    UNKNOWN_ID = "unknown_id"
    """An id of this side's parity that this side never used."""
    CREDIT = "credit"
    """The grants of a stream exceed 2^62 bytes in total."""
    DATA_AFTER_END = "data_after_end"


class MuxError(Exception):
    """Base class of this package's errors."""


class FrameError(MuxError):
    """A message is not a frame, or the frame is malformed.

    Attributes:
        violation: kind of the violation.
    """

    def __init__(self, violation: Violation, text: str) -> None:
        super().__init__(text)
        self.violation = violation


class StreamStateError(MuxError):
    """The stream, its half or the connection has ended."""


class StreamIdsUsedUpError(MuxError):
    """All ids of this side have been used."""
