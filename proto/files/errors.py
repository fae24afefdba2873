"""Errors of an upload.

FileError             has the code and the text of the error answer
|- RefusedError       the receiver refuses the request
`- StatusError        an answer that does not follow this protocol
"""

from __future__ import annotations

from enum import IntEnum


class FileCode(IntEnum):
    """Codes of the error answers to `file.*`."""

    BAD_REQUEST = 400
    """The request breaks a rule or a bound; the text names it."""
    NOT_ALLOWED = 403
    """This peer accepts no uploads, or none from this twin."""
    UNKNOWN = 404
    """There is no such upload; the sender must offer the file again."""
    EXISTS = 409
    """A file of this name already exists."""
    TOO_LARGE = 413
    """The file is above the size limit, or exceeds the quota of its twin."""
    AHEAD = 416
    """The chunk is beyond the receiver's window; the sender must offer the file again to learn
    which chunks the receiver has."""
    CHECKSUM = 422
    """The received file does not match its offer; it is deleted."""
    BUSY = 429
    """Too many uploads or chunks at a time; the same request may be accepted later."""
    FAILED = 503
    """The receiver's disk fails."""
    NO_SPACE = 507
    """The receiver's disk is full."""


class FileError(Exception):
    """Base class of the exceptions that this package raises."""


class RefusedError(FileError):
    """The receiver refuses the request; code and text go into the error answer."""

    def __init__(self, code: FileCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class StatusError(FileError):
    """An answer that does not follow this protocol: the receiver uses another one."""
