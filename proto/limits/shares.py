"""Room for what waits, shared so that whoever asks for much leaves room for others.

Each may have as much as is free at that moment: alone half of all, beside one that has its fill a
third, and so on. However greedy some are, one who comes later finds room; and no room is kept for
those who do not ask. (Switches share their buffers like this: "dynamic thresholds".)
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Shares(Generic[Key]):
    """Who has how much of something.

    Attributes:
        free: what nobody has.
    """

    def __init__(self, total: int) -> None:
        self.free = total
        self._taken: dict[Key, int] = {}

    def take(self, who: Key) -> bool:
        """Takes one for somebody; False when that one has as much as is free already."""
        taken = self._taken.get(who, 0)
        if taken >= self.free:
            return False
        self._taken[who] = taken + 1
        self.free -= 1
        return True

    def give(self, who: Key) -> None:
        """Gives one of somebody's back."""
        left = self._taken[who] - 1
        if left:
            self._taken[who] = left
        else:
            del self._taken[who]
        self.free += 1
