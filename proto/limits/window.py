"""Fixed window limit of a twin: a number of messages and bytes per minute of the clock.

Several workers serve sessions of one twin. Each counts the messages that it admits in a
`WindowCount` and adds the part not yet reported to the shared counter (`take`). The counter's
reply, the sum over all workers, comes back with `merge`. A decision uses that sum and everything
counted here since. It is exact for one worker; for several, its accuracy depends on how often they
report.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

WINDOW_S: Final = 60
"""Length of a window. Windows begin at multiples of this in Unix time, as in rmb-rs 1.5."""


class Excess(Enum):
    """Which part of the limit a message exceeded."""

    COUNT = auto()
    SIZE = auto()


class Limit(NamedTuple):
    """Limits of one window; 0 means unlimited, for each separately.

    Attributes:
        messages: number of messages.
        size_bytes: size of all messages together, and of each single one.
    """

    messages: int = 0
    size_bytes: int = 0


class Increment(NamedTuple):
    """Amount that a worker adds to the shared counter of a window."""

    window: int
    messages: int
    size_bytes: int


def window_index(now: float) -> int:
    """Return the number of the window that Unix time `now` falls into."""
    return int(now // WINDOW_S)


class WindowCount:
    """Messages and bytes of one twin in the current window.

    Attributes:
        window: index of the window that the numbers belong to.
        messages: messages of all workers, as far as known here.
        size_bytes: bytes of all workers, as far as known here.
        new_messages: messages counted here and not taken yet.
        new_bytes: bytes counted here and not taken yet.
        merged: whether a reply of the shared counter of this window has been received.
    """

    __slots__ = (
        "_unanswered",
        "merged",
        "messages",
        "new_bytes",
        "new_messages",
        "size_bytes",
        "window",
    )

    def __init__(self) -> None:
        self.window = -1
        self.messages = self.size_bytes = 0
        self.new_messages = self.new_bytes = 0
        self.merged = False
        self._unanswered = False  # an increment is on its way to the shared counter

    def admit(self, size_bytes: int, limit: Limit, now: float) -> Excess | None:
        """Count a message, and return which part of the limit it exceeds, or None.

        A message larger than the whole window's limit is refused without being counted. Any other
        message counts even if it is refused, as in rmb-rs 1.5: a client that keeps sending stays
        refused.
        """
        window = int(now // WINDOW_S)
        if window != self.window:
            self._begin(window)
        max_messages, max_bytes = limit
        if max_bytes and size_bytes > max_bytes:
            return Excess.SIZE
        self.messages += 1
        self.size_bytes += size_bytes
        self.new_messages += 1
        self.new_bytes += size_bytes
        if max_messages and self.messages > max_messages:
            return Excess.COUNT
        if max_bytes and self.size_bytes > max_bytes:
            return Excess.SIZE
        return None

    def admit_all(self, messages: int, size_bytes: int, limit: Limit, now: float) -> bool:
        """Count messages if together they stay within the limit; return False if they must be
        admitted singly.
        """
        window = int(now // WINDOW_S)
        if window != self.window:
            self._begin(window)
        max_messages, max_bytes = limit
        all_messages = self.messages + messages
        all_bytes = self.size_bytes + size_bytes
        if (max_messages and all_messages > max_messages) or (max_bytes and all_bytes > max_bytes):
            return False
        self.messages = all_messages
        self.size_bytes = all_bytes
        self.new_messages += messages
        self.new_bytes += size_bytes
        return True

    def is_roomy(self, messages: int, size_bytes: int, limit: Limit, now: float) -> bool:
        """Return whether half of the limit stays free after this many more, as far as is known."""
        if not self.merged or int(now // WINDOW_S) != self.window:
            return False
        max_messages, max_bytes = limit
        return (not max_messages or 2 * (self.messages + messages) <= max_messages) and (
            not max_bytes or 2 * (self.size_bytes + size_bytes) <= max_bytes
        )

    def uncount(self, size_bytes: int, window: int) -> None:
        """Undo the count of one message in a window; do nothing if that window is over."""
        if window == self.window:
            self.messages -= 1
            self.size_bytes -= size_bytes
            self.new_messages -= 1  # below zero if it was reported already
            self.new_bytes -= size_bytes

    def take(self) -> Increment | None:
        """Return the part that the shared counter does not have yet; None if there is nothing to
        add.

        Nothing is returned until the previous increment was answered (`merge`, `settle` or
        `give_back`), so that at most one commit is unanswered at a time.
        """
        if self._unanswered or not self.new_messages:
            return None
        increment = Increment(self.window, self.new_messages, self.new_bytes)
        self.new_messages = self.new_bytes = 0
        self._unanswered = True
        return increment

    def merge(self, window: int, messages: int, size_bytes: int) -> None:
        """Apply the shared counter's reply to the increment; ignore one for a past window."""
        if window == self.window:
            self.merged = True
            self.messages = messages + self.new_messages
            self.size_bytes = size_bytes + self.new_bytes
            self._unanswered = False

    def settle(self, window: int) -> None:
        """Record that the increment was applied although its reply was lost."""
        if window == self.window:
            self._unanswered = False

    def give_back(self, increment: Increment) -> None:
        """Record that the increment was refused; it is taken again together with the next one."""
        if increment.window == self.window:
            self.new_messages += increment.messages
            self.new_bytes += increment.size_bytes
            self._unanswered = False

    def _begin(self, window: int) -> None:
        self.window = window
        self.messages = self.size_bytes = 0
        self.new_messages = self.new_bytes = 0
        self.merged = False
        self._unanswered = False  # a reply that still arrives is ignored
