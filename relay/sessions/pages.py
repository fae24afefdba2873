"""How many entries of its stream a session reads at a time."""

from __future__ import annotations

from typing import Final

PAGE_MESSAGES: Final = 256
FIRST_PAGE_MESSAGES: Final = 2
"""The first page, before the size of the messages is known. Further ones have at most twice as many
each: they may be larger than the first."""


class Pages:
    """What the pages so far tell of the next one."""

    __slots__ = ("_average_bytes", "_largest")

    def __init__(self) -> None:
        self._average_bytes = 0  # of the messages in the last page
        self._largest = 0  # how many entries a page had

    def entries(self, room_bytes: int) -> int:
        """How many to read: as many as there is room for."""
        if not self._average_bytes:
            return FIRST_PAGE_MESSAGES
        most = min(PAGE_MESSAGES, 2 * self._largest)
        return max(1, min(most, room_bytes // self._average_bytes))

    def came(self, entries: int) -> None:
        """A page had so many entries."""
        self._largest = max(self._largest, entries)

    def took(self, messages: int, size_bytes: int) -> None:
        """Of the last page these were delivered."""
        self._average_bytes = size_bytes // messages + 1
