"""One timer for many connections that all have the same time-out.

A timer per connection would cost the loop a heap entry each time. As the time-out is the same for
all, a queue in order of arrival and one timer for its head are enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadlines:
    """Calls back for each key that was added and not removed within `allowed_s` seconds."""

    __slots__ = ("_allowed_s", "_timer", "_waiting")

    def __init__(self, allowed_s: float) -> None:
        self._allowed_s = allowed_s
        self._waiting: dict[object, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, key: object, expired: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        """Call `expired` unless `key` is removed in time. A key added before starts again."""
        self._waiting.pop(key, None)  # the order is that of the deadlines
        self._waiting[key] = (loop.time() + self._allowed_s, expired)
        if self._timer is None:
            self._timer = loop.call_later(self._allowed_s, self._expire, loop)

    def remove(self, key: object) -> None:
        """Remove `key`, if it was added."""
        self._waiting.pop(key, None)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        due = []
        for key, (deadline, expired) in self._waiting.items():
            if deadline > now:
                self._timer = loop.call_at(deadline, self._expire, loop)
                break
            due.append((key, expired))
        for key, expired in due:
            del self._waiting[key]
            expired()
