"""Bounds of the websocket layer (RFC 6455): a constant, its unit, its reason."""

from __future__ import annotations

from typing import Final

MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""One message, all fragments together; the default, what the reference relay takes."""

PARTIAL_BYTES: Final = 64 * 1024 * 1024
"""Incomplete frames and messages of all connections of one process together; the default."""

MAX_CONTROL_BYTES: Final = 125
"""Payload of a control frame (RFC 6455, section 5.5)."""

MAX_REASON_BYTES: Final = MAX_CONTROL_BYTES - 2
"""UTF-8 reason of a close frame: what the two bytes of the code leave."""


MAX_CALL_FRAMES: Final = 128
"""Messages in one frame, and so many other frames, that a reader reads at a time, whatever they
give: two milliseconds of work or so. Then other connections have their turn. A read of the smallest
frames there are is work for half a second."""


class PartialBudget:
    """Memory that many may hold together in what is incomplete; who asks in vain has to go.

    Attributes:
        limit_bytes: the bound.
        used_bytes: what is held now.
        refused: how often it bit; each time one connection was ended.
    """

    __slots__ = ("limit_bytes", "refused", "used_bytes")

    def __init__(self, limit_bytes: int = PARTIAL_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.refused = 0

    def take(self, size_bytes: int) -> bool:
        """Account for `size_bytes` more; False, with nothing taken, when that is too much."""
        used = self.used_bytes + size_bytes
        if used > self.limit_bytes:
            self.refused += 1
            return False
        self.used_bytes = used
        return True

    def give(self, size_bytes: int) -> None:
        """Return what was taken."""
        self.used_bytes -= size_bytes
