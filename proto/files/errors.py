"""What can be wrong with an upload.

FileError             has the code and the text of the error answer
|- RefusedError       the receiver does not want it
`- StatusError        an answer that is none of this protocol
"""

from __future__ import annotations

from enum import IntEnum


class FileCode(IntEnum):
    """Codes of the error answers to `file.*`."""

    BAD_REQUEST = 400
    """The request breaks a rule or a bound; the text names it."""
    NOT_ALLOWED = 403
    """This peer takes no uploads, or none of this twin."""
    UNKNOWN = 404
    """No such upload: offer the file anew."""
    EXISTS = 409
    """A file of this name is there already."""
    TOO_LARGE = 413
    """Above the size of one file, or the quota of this twin."""
    AHEAD = 416
    """Further on than the receiver takes chunks yet: offer the file anew to learn what it has."""
    CHECKSUM = 422
    """What arrived is not what was offered; it is deleted."""
    BUSY = 429
    """Too much at a time; the same request may be taken later."""
    FAILED = 503
    """The receiver's disk does not work."""
    NO_SPACE = 507
    """The receiver's disk is full."""


class FileError(Exception):
    """Base of what this package raises."""


class RefusedError(FileError):
    """The receiver does not want it; code and text go into the error answer."""

    def __init__(self, code: FileCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StatusError(FileError):
    """An answer that is none of this protocol: the other end speaks another one."""
