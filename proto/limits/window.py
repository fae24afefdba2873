"""The fixed window limit of a twin: so many messages and bytes per minute of the clock.

Several workers serve sessions of one twin. Each counts what it admits in a `WindowCount` and hands
the part not yet reported to the shared counter (`take`); the counter's reply, the sum over all
workers, comes back with `merge`. A judgement uses that sum and everything counted here since: exact
for one worker, and for several as exact as reports are frequent.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

WINDOW_S: Final = 60
"""Windows begin at multiples of this of unix time, as in rmb-rs 1.5."""


class Excess(Enum):
    """Which half of the limit a message broke."""

    COUNT = auto()
    SIZE = auto()


class Limit(NamedTuple):
    """What one window may hold; 0 is unlimited, for each by itself.

    Attributes:
        messages: how many.
        size_bytes: of all messages together, and of each one.
    """

    messages: int = 0
    size_bytes: int = 0


class Increment(NamedTuple):
    """What a worker adds to the shared counter of a window."""

    window: int
    messages: int
    size_bytes: int


def window_index(now: float) -> int:
    """Returns the number of the window that unix time `now` falls into."""
    return int(now // WINDOW_S)


class WindowCount:
    """Messages and bytes of one twin in the current window.

    Attributes:
        window: index of the window the numbers belong to.
        messages: over all workers, as far as known here.
        size_bytes: the same.
        new_messages: counted here and not taken yet.
        new_bytes: the same.
        merged: whether the shared counter of this window was heard of.
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
        """Counts a message and says which half of the limit it breaks, if any.

        A message larger than the whole window is refused without being counted; any other one
        counts, refused or not, as in rmb-rs 1.5: who keeps sending stays refused.
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
        """Counts messages if none of them breaks the limit; if not, they are judged singly."""
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
        """Whether so much more leaves half of the limit free, as far as is known."""
        if not self.merged or int(now // WINDOW_S) != self.window:
            return False
        max_messages, max_bytes = limit
        return (not max_messages or 2 * (self.messages + messages) <= max_messages) and (
            not max_bytes or 2 * (self.size_bytes + size_bytes) <= max_bytes
        )

    def uncount(self, size_bytes: int, window: int) -> None:
        """Takes back one message that was counted in a window; nothing if that is over."""
        if window == self.window:
            self.messages -= 1
            self.size_bytes -= size_bytes
            self.new_messages -= 1  # below zero where it was reported already
            self.new_bytes -= size_bytes

    def take(self) -> Increment | None:
        """Hands out what the shared counter does not have yet; None when there is nothing.

        Nothing is handed out until the former increment was answered (`merge` or `settle`), as
        exactly one commit is unanswered at a time.
        """
        if self._unanswered or not self.new_messages:
            return None
        increment = Increment(self.window, self.new_messages, self.new_bytes)
        self.new_messages = self.new_bytes = 0
        self._unanswered = True
        return increment

    def merge(self, window: int, messages: int, size_bytes: int) -> None:
        """Takes the shared counter's reply to the increment; one for a past window is void."""
        if window == self.window:
            self.merged = True
            self.messages = messages + self.new_messages
            self.size_bytes = size_bytes + self.new_bytes
            self._unanswered = False

    def settle(self, window: int) -> None:
        """Takes note that the increment was applied although its reply was lost."""
        if window == self.window:
            self._unanswered = False

    def give_back(self, increment: Increment) -> None:
        """Takes note that the increment was refused: it is handed out again with the next one."""
        if increment.window == self.window:
            self.new_messages += increment.messages
            self.new_bytes += increment.size_bytes
            self._unanswered = False

    def _begin(self, window: int) -> None:
        self.window = window
        self.messages = self.size_bytes = 0
        self.new_messages = self.new_bytes = 0
        self.merged = False
        self._unanswered = False  # a reply that still comes is void
