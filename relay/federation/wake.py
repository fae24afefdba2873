"""Starting the task that drains a shard of the outbox, from a relay worker.

A worker that wrote a message into a shard without a drainer starts the task here, in a thread:
talking to Celery's broker blocks, and importing Celery takes most of a second, which a worker that
never federates avoids. A failed start loses nothing: the beat starts a drainer for every shard that
has messages but no drainer.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from relay.ops import background
from relay.queues import keys

log = logging.getLogger(__name__)

START_S: Final = 1.0
"""Minimum seconds between two starts for one shard: a task needs that long to get its lease."""
TASK: Final = "federation.deliver"
JOIN_S: Final = 2.0
"""Seconds that a stop waits for a start in progress; the thread ends with the process."""


def start_task(shard: int) -> None:
    """Queue the task of one shard. Blocks, and imports Celery."""
    background.hand_over(TASK, shard)


class Starter:
    """Starts tasks for one worker, in one thread that is created when it is first needed.

    Attributes:
        failures: number of starts that failed.
    """

    def __init__(
        self,
        start: Callable[[int], None] = start_task,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.failures = 0
        self._start = start
        self._clock = clock
        self._again_at: dict[int, float] = {}  # shard -> time from which it may be started again
        self._waiting: queue.Queue[int | None] = queue.Queue(keys.OUTBOX_SHARDS + 1)
        self._thread: threading.Thread | None = None
        self._failing = False

    def wake(self, shard: int) -> None:
        """Start the task of a shard in the background; called on the loop, does not block."""
        now = self._clock()
        if now < self._again_at.get(shard, now):
            return
        self._again_at[shard] = now + START_S
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="federation-wake", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(shard)
        except queue.Full:
            self.failures += 1  # the broker does not answer; the beat starts it when it does

    def stop(self) -> None:
        """End the thread; blocks for a moment if it is busy."""
        if self._thread is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        while (shard := self._waiting.get()) is not None:
            try:
                self._start(shard)
            except Exception as error:
                self.failures += 1
                if not self._failing:
                    log.warning("task of federation shard %d cannot be started: %s", shard, error)
                self._failing = True
            else:
                self._failing = False
