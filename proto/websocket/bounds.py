"""Bounds of the websocket layer (RFC 6455), each with its unit and reason."""

from __future__ import annotations

from typing import Final

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Default maximum size of one message, all fragments together; what the reference relay accepts."""

PARTIAL_BYTES: Final = 64 * 1024 * 1024
"""Default maximum size of incomplete frames and messages of all connections of one process
together."""

MAX_CONTROL_BYTES: Final = 125
"""Maximum size of the payload of a control frame (RFC 6455, section 5.5)."""

MAX_REASON_BYTES: Final = MAX_CONTROL_BYTES - 2
"""Maximum size of the UTF-8 reason of a close frame, after the two bytes of the code."""


MAX_CALL_FRAMES: Final = 128
"""Maximum number of single-frame messages, and of other frames, that a reader processes per call:
about two milliseconds of work. Then other connections have their turn. One socket read full of the
smallest frames would take half a second."""


class PartialBudget:
    """Memory that many connections may hold together in incomplete messages. A connection that
    exceeds it must be closed.

    Attributes:
        limit_bytes: the bound.
        used_bytes: bytes held now.
        refused: number of times that the bound was exceeded; each time one connection was ended.
    """

    __slots__ = ("limit_bytes", "refused", "used_bytes")

    def __init__(self, limit_bytes: int = PARTIAL_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.refused = 0

    def take(self, size_bytes: int) -> bool:
        """Account for `size_bytes` more; return False, with nothing taken, if that exceeds the
        bound.
        """
        used = self.used_bytes + size_bytes
        if used > self.limit_bytes:
            self.refused += 1
            return False
        self.used_bytes = used
        return True

    def give(self, size_bytes: int) -> None:
        """Release bytes that were taken."""
        self.used_bytes -= size_bytes
