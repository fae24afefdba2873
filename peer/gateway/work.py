"""Tasks that process messages: counted, with the bytes they hold, and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Work:
    """A set of tasks in progress.

    Args:
        on_done: called after each task that has ended.

    Attributes:
        size_bytes: size of the messages being processed.
    """

    def __init__(self, on_done: Callable[[], None] | None = None) -> None:
        self.size_bytes = 0
        self._on_done = on_done
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def tasks(self) -> frozenset[asyncio.Task[None]]:
        """All tasks in progress."""
        return frozenset(self._tasks)

    def start(self, work: Coroutine[Any, Any, None], size_bytes: int) -> None:
        """Start one more task."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        self.size_bytes += size_bytes

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self.size_bytes -= size_bytes
            if self._on_done is not None:
                self._on_done()

        task.add_done_callback(done)

    async def aclose(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
