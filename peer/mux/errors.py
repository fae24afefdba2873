"""Errors of streams and their connection."""

from __future__ import annotations

from proto.mux.errors import MuxError
from proto.mux.events import FailReason
from proto.mux.frames import Half


class ConnectionEndedError(MuxError):
    """The connection has ended, or could not be established."""


class StreamFailedError(MuxError):
    """A half of a stream failed before its end.

    Attributes:
        code: code that the other side sent; 0 for other reasons.
        reason: reason of the failure.
    """

    def __init__(self, half: Half, code: int, reason: FailReason) -> None:
        doing = "reading" if half is Half.READ else "writing"
        text = f"{doing}: {reason.value.replace('_', ' ')}"
        super().__init__(f"{text}, code {code}" if reason is FailReason.PEER else text)
        self.code = code
        self.reason = reason
