"""Fair sharing of a limited number of waiting places.

Each user may hold as many places as are free at that moment: a single user gets half of all, two
users a third each, and so on. However many places some users request, a later one finds room, and
no places are reserved for users that request none. (Network switches share their buffers in this
way: "dynamic thresholds".)
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Shares(Generic[Key]):
    """Places held by each user.

    Attributes:
        free: number of places that no user holds.
    """

    def __init__(self, total: int) -> None:
        self.free = total
        self._taken: dict[Key, int] = {}

    def take(self, who: Key) -> bool:
        """Take a place for a user; return False if it already holds as many as are free."""
        taken = self._taken.get(who, 0)
        if taken >= self.free:
            return False
        self._taken[who] = taken + 1
        self.free -= 1
        return True

    def give(self, who: Key) -> None:
        """Give back one place of a user."""
        left = self._taken[who] - 1
        if left:
            self._taken[who] = left
        else:
            del self._taken[who]
        self.free += 1
