"""The number of entries that a session reads from its stream at a time."""

from __future__ import annotations

from typing import Final

PAGE_MESSAGES: Final = 256
FIRST_PAGE_MESSAGES: Final = 2
"""Entries of the first page, before the size of messages is known. Each further page has at most
twice as many as the largest before, as its messages may be larger."""


class Pages:
    """The pages read so far, which determine the size of the next one."""

    __slots__ = ("_average_bytes", "_largest")

    def __init__(self) -> None:
        self._average_bytes = 0  # size of a message in the last page
        self._largest = 0  # most entries that a page had

    def entries(self, room_bytes: int) -> int:
        """Return the number of entries to read, by the room there is."""
        if not self._average_bytes:
            return FIRST_PAGE_MESSAGES
        most = min(PAGE_MESSAGES, 2 * self._largest)
        return max(1, min(most, room_bytes // self._average_bytes))

    def came(self, entries: int) -> None:
        """Record that a page with this many entries was read."""
        self._largest = max(self._largest, entries)

    def took(self, messages: int, size_bytes: int) -> None:
        """Record the messages of the last page that were delivered."""
        self._average_bytes = size_bytes // messages + 1
